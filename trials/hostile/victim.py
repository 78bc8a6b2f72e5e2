"""A service with credentials and an honest caller that follows an endless stream: `python -m trials.hostile.victim`.

Every 0.1 s it prints the longest CPU time, in seconds, between two turns of a timer that is due every
millisecond: the delay of a concurrent honest stream.
"""

import asyncio
import sys
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from time import thread_time
from typing import Any

from headrace.v1 import agent_pb2, agent_pb2_grpc, keys_pb2, keys_pb2_grpc
from services.runtime.process import program
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.channels import EDGE_MESSAGE_BYTES_MAX
from services.runtime.rpc.server import GrpcService, serving_grpc

REPORT_S = 0.1
TICK_S = 0.03


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    server: ServerSettings = ServerSettings(listen="127.0.0.1:0")


class Agents(agent_pb2_grpc.AgentServiceServicer):
    async def Attach(self, request: Any, context: Any) -> AsyncGenerator[agent_pb2.AgentDelta]:
        seq = 0
        while True:
            seq += 1
            yield agent_pb2.AgentDelta(seq=seq, content_delta=agent_pb2.ContentDelta(content_id="c", delta="x"))
            await asyncio.sleep(TICK_S)

    async def Query(self, request: Any, context: Any) -> AsyncGenerator[agent_pb2.AgentDelta]:
        yield agent_pb2.AgentDelta(seq=len(request.message))


class Keys(keys_pb2_grpc.KeyServiceServicer):
    """Keys of a memory service that stores none and has no suspended users."""

    async def ReadKeyChanges(self, request: Any, context: Any) -> keys_pb2.ReadKeyChangesResponse:
        return keys_pb2.ReadKeyChangesResponse()


async def report_stalls() -> None:
    loop = asyncio.get_running_loop()
    longest, before, due_s = 0.0, thread_time(), loop.time() + REPORT_S
    while True:
        await asyncio.sleep(0.001)
        now = thread_time()
        longest, before = max(longest, now - before), now
        if loop.time() >= due_s:
            sys.stdout.write(f"{longest}\n")
            sys.stdout.flush()
            longest, due_s = 0.0, loop.time() + REPORT_S


async def main(config: Config) -> None:
    service = GrpcService(
        "headrace.v1.AgentService",
        Agents(),  # pyright: ignore[reportAbstractUsage] - the others are left out
        agent_pb2_grpc.add_AgentServiceServicer_to_server,
    )
    keys = GrpcService(
        "headrace.v1.KeyService",
        Keys(),  # pyright: ignore[reportAbstractUsage] - the others are left out
        keys_pb2_grpc.add_KeyServiceServicer_to_server,
    )
    async with serving_grpc(config.server, [service, keys], message_bytes_max=EDGE_MESSAGE_BYTES_MAX):
        reporting = asyncio.create_task(report_stalls())
        await program.wait_for_stop()
        reporting.cancel()


if __name__ == "__main__":
    program.run_service(Config, "ORCHESTRATOR", main)
