"""A small service in a separate process, with its log."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson

from tests.support.programs import starting

PROCESS_TIMEOUT_S = 200.0


@dataclass(frozen=True, slots=True)
class Process:
    process: asyncio.subprocess.Process

    async def ended(self) -> tuple[int, list[bytes]]:
        """Wait for the process to exit; return its exit code and the remaining log lines."""
        _, stderr = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, stderr.splitlines()

    async def logged(self, event: str) -> dict[str, Any]:
        """Its next line of that name; every line on the way must be JSON."""
        assert self.process.stderr is not None
        while line := await self.process.stderr.readline():
            if (fields := orjson.loads(line))["event"] == event:
                return fields
        raise AssertionError(f"ended without {event!r}")


@asynccontextmanager
async def small_service(**env: str) -> AsyncGenerator[Process]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("HEADRACE_")}
    command = (sys.executable, "-m", "tests.support.small_service")
    async with asyncio.timeout(PROCESS_TIMEOUT_S), starting(*command, env=inherited | env, stderr=PIPE) as process:
        yield Process(process)
