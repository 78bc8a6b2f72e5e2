"""A lower bound for Append: the suite's own server with an Append that answers at once.

`python -m benchmarks.memory.echo FOLDER` listens at the memory service's address.
"""

from __future__ import annotations

import sys
from typing import Any

import uvloop

from headrace.v1 import memory_pb2, memory_pb2_grpc
from services.runtime.process import logs
from services.runtime.process.config import ServerSettings
from services.runtime.process.program import wait_for_stop
from services.runtime.rpc.server import GrpcService, serving_grpc


class Echo(memory_pb2_grpc.MemoryServiceServicer):
    """A memory service that stores nothing."""

    async def Append(self, request: memory_pb2.AppendRequest, context: Any) -> memory_pb2.AppendResponse:
        return memory_pb2.AppendResponse(first_n=1, last_n=len(request.lines), chat_name="hello")


async def main(folder: str) -> None:
    logs.configure_logging("INFO", "memory")
    echo = Echo()  # pyright: ignore[reportAbstractUsage] - its other RPCs are not called
    served = GrpcService("headrace.v1.MemoryService", echo, memory_pb2_grpc.add_MemoryServiceServicer_to_server)
    async with serving_grpc(ServerSettings(listen=f"unix:{folder}/memory.sock", drain_s=0), [served]):
        await wait_for_stop()


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1]))
