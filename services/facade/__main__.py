"""Entry point of the facade: `python -m services.facade`."""

from __future__ import annotations

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()  # before the slow imports below

from contextlib import AsyncExitStack

from services.facade.config import Config
from services.facade.service import serve
from services.runtime.auth.callers import FACADE
from services.runtime.process import program
from services.runtime.rpc import channels
from services.runtime.rpc.channels import build_caller_metadata


async def main(config: Config) -> None:
    addresses = {
        "orchestrator": config.orchestrator_address,
        "memory": config.memory_address,
        "tools": config.tools_address,
    }
    shown = build_caller_metadata(config.process.auth, FACADE)
    async with AsyncExitStack() as stack:
        peers = {
            name: await stack.enter_async_context(
                channels.open_channel(address, shown, find_key=channels.FIND_KEY.get(name))
            )
            for name, address in addresses.items()
        }
        await stack.enter_async_context(serve(config, peers))
        await program.wait_for_stop()


if __name__ == "__main__":
    program.run_service(Config, "FACADE", main)
