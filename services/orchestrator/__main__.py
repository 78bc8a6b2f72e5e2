"""python -m services.orchestrator"""

from __future__ import annotations

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()  # before the slow imports below

from services.orchestrator.config import Config
from services.orchestrator.server import orchestrator
from services.runtime.process import program


async def main(config: Config) -> None:
    async with orchestrator(config):
        await program.wait_for_stop()


if __name__ == "__main__":
    program.run_service(Config, "ORCHESTRATOR", main)
