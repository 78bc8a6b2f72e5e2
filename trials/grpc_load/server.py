"""A gateway with a model that answers steadily, in a separate process: `python -m trials.grpc_load.server`."""

if __name__ == "__main__":
    from services.runtime.process.early_stop import prepare_process

    prepare_process()

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Any

from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.runtime.process import program
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import GrpcService, serving_grpc

SERVICE = "LOAD"
"""Service name in environment variables."""

GOLDEN = 0.618
"""Multiples of it modulo 1 are evenly distributed for any number of streams."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    server: ServerSettings = ServerSettings(listen="127.0.0.1:0")
    per_s: float = 33.0
    """Deltas per stream and second."""

    deltas: int = 1000
    """Number of deltas per stream."""


class SteadyModel(llm_pb2_grpc.LlmServiceServicer):
    def __init__(self, per_s: float, deltas: int) -> None:
        self._per_s = per_s
        self._deltas = deltas
        self._streams = 0

    async def StreamChat(self, request: llm_pb2.ChatRequest, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        clock = asyncio.get_running_loop().time
        # Like real models, streams send at different times, not all at once.
        start_s = clock() + self._streams * GOLDEN % 1 / self._per_s
        self._streams += 1
        for number in range(self._deltas):
            if (wait_s := start_s + number / self._per_s - clock()) > 0:
                await asyncio.sleep(wait_s)
            yield llm_pb2.LlmDelta(content="delta ")


async def main(config: Config) -> None:
    model = SteadyModel(config.per_s, config.deltas)  # pyright: ignore[reportAbstractUsage] - it answers, no more
    name = llm_pb2.DESCRIPTOR.services_by_name["LlmService"].full_name
    service = GrpcService(name, model, llm_pb2_grpc.add_LlmServiceServicer_to_server)
    async with serving_grpc(config.server, [service]):
        await program.wait_for_stop()


if __name__ == "__main__":
    program.run_service(Config, SERVICE, main)
