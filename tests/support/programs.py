"""Programs as separate processes, inside a block or run to their end."""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from os import PathLike
from typing import Any


@asynccontextmanager
async def starting(*command: str | PathLike[str], **options: Any) -> AsyncGenerator[Process]:
    """Run a program inside the block; it is killed at the end of the block unless it has exited."""
    process = await asyncio.create_subprocess_exec(*command, **options)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def run_to_end(
    *command: str | PathLike[str], given: bytes | None = None, timeout_s: float = 300.0, **options: Any
) -> tuple[int | None, bytes, bytes]:
    """Return a program's exit code, stdout and stderr; with `stderr=STDOUT`, stdout has both."""
    options = {"stdout": PIPE, "stderr": PIPE} | options
    async with asyncio.timeout(timeout_s), starting(*command, **options) as process:
        output, complaints = await process.communicate(given)
    return process.returncode, output or b"", complaints or b""
