"""Runs the memory service as a separate process, over an empty folder."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from headrace.v1.memory_pb2_grpc import MemoryServiceStub
from services.runtime.rpc.channels import open_channel

if TYPE_CHECKING:
    from benchmarks.postgresql import Server
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

START_TIMEOUT_S = 20.0


@dataclass(frozen=True, slots=True)
class Running:
    """A running memory service."""

    stub: MemoryServiceAsyncStub
    address: str
    pid: int


def engines(server: Server | None) -> dict[str, Callable[[], str]]:
    """Return by engine name a function that creates an empty store: a database URL, or an empty string for files.

    Without a PostgreSQL server there is only one engine.
    """
    return {"files": str} | ({"PostgreSQL": server.new_database} if server else {})


@asynccontextmanager
async def running(
    folder: Path,
    llm_gateway: str = "",
    command: Sequence[str] = ("services.memory",),
    database_url: str = "",
    **others: str,
) -> AsyncGenerator[Running]:
    """Run the service inside the block, over `folder` or a database; run it again for a restart.

    `command` is the module with its arguments; `others` are settings.
    """
    address = f"unix:{folder}/memory.sock"
    settings = {
        "HEADRACE_MEMORY_LISTEN": address,
        "HEADRACE_MEMORY_LLM_GATEWAY_ADDRESS": llm_gateway or f"unix:{folder}/nobody.sock",
        "HEADRACE_DATA_DIR": str(folder),
        "HEADRACE_DATABASE_URL": database_url,
        **others,
    }
    with _log(folder) as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", *command, env=os.environ | settings, stderr=log
        )
    try:
        async with open_channel(address) as channel:
            async with asyncio.timeout(START_TIMEOUT_S):
                await channel.channel_ready()
            yield Running(MemoryServiceStub(channel), address, process.pid)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _log(folder: Path) -> IO[bytes]:
    """Open the log file; writing log lines is part of the measured cost."""
    folder.mkdir(parents=True, exist_ok=True)
    return open(folder / "memory.log", "ab")
