"""A service as small as they get, for the tests of its process: `python -m tests.runtime.small_service`."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from services.runtime.process import program
from services.runtime.process.config import ServerSettings, setting
from services.runtime.rpc.server import serving_grpc
from tests.scripted_llm import ScriptedLlm, build_service

TICKS = ["tick", 0.1] * 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    server: ServerSettings = ServerSettings(listen="127.0.0.1:0")
    key: str = setting("", secret=True)
    ticks: int = 5
    start_s: float = 0.0
    blocks_s: float = 0.0
    """Time for which the loop is held once it serves."""


async def main(config: Config) -> None:
    llm = ScriptedLlm(TICKS)  # pyright: ignore[reportAbstractUsage] - ListModels is left out on purpose
    await asyncio.sleep(config.start_s)
    # A group wraps the errors inside it.
    async with asyncio.TaskGroup(), serving_grpc(config.server, [build_service(llm)]):
        time.sleep(config.blocks_s)  # noqa: ASYNC251 - what must not be done
        await program.wait_for_stop()


if __name__ == "__main__":
    program.run_service(Config, "MEMORY", main)
