"""`python -m services.memory`: the memory service over the logs of one folder."""

from __future__ import annotations

import asyncio
from contextlib import closing

from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import add_MemoryServiceServicer_to_server
from services.memory.config import Config
from services.memory.context import Window
from services.memory.disk import Disk
from services.memory.service import MemoryService
from services.memory.store import Store, opened
from services.runtime import program
from services.runtime.server import Served, serving, until_stopped


async def main(config: Config) -> None:
    disk = await asyncio.to_thread(Disk, config.logs_dir)
    with closing(disk):
        async with opened(disk) as store, serving(config.server, [served(store, config)]):
            await until_stopped()


def served(store: Store, config: Config) -> Served:
    """The service over `store`."""
    window = Window(config.chat_k, config.message_history_max)
    servicer = MemoryService(  # pyright: ignore[reportAbstractUsage] - the other RPCs are UNIMPLEMENTED
        store, window, config.action_tools
    )
    name = memory_pb2.DESCRIPTOR.services_by_name["MemoryService"].full_name
    return Served(name, servicer, add_MemoryServiceServicer_to_server)


if __name__ == "__main__":
    program.run(Config, "MEMORY", main)
