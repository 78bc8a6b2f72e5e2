"""A minimal service for tests of service processes: `python -m tests.support.small_service`."""

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()

import asyncio
import gc
from dataclasses import dataclass

import structlog

from services.runtime.ending import guard_task
from services.runtime.process import program
from services.runtime.process.config import ServerSettings, setting
from services.runtime.rpc.server import serving_grpc
from tests.support.scripted_llm import ScriptedLlm, build_service

log = structlog.get_logger()

TICKS = ["tick", 0.1] * 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    server: ServerSettings = ServerSettings(listen="127.0.0.1:0")
    key: str = setting("", secret=True)
    ticks: int = 5
    start_s: float = 0.0
    blocks: bool = False
    """Whether the interpreter is blocked for ever once it serves."""
    breaks_after_s: float = 0.0
    """Time after which one of its permanent tasks fails; 0 means never."""


async def main(config: Config) -> None:
    llm = ScriptedLlm(TICKS)  # pyright: ignore[reportAbstractUsage] - ListModels is left out on purpose
    await asyncio.sleep(config.start_s)
    # A group wraps the errors inside it.
    async with asyncio.TaskGroup() as group, serving_grpc(config.server, [build_service(llm)]):
        sum(range(10**14 if config.blocks else 0))
        if config.breaks_after_s:
            guard_task(group.create_task(_break(config.breaks_after_s)))
        log.info("started", collects=gc.isenabled())
        await program.wait_for_stop()


async def _break(after_s: float) -> None:
    await asyncio.sleep(after_s)
    raise LookupError("nothing")


if __name__ == "__main__":
    program.run_service(Config, "MEMORY", main)
