"""An orchestrator that only sends: each answer is so many deltas, so many milliseconds apart, each saying when it was
sent. A query's message says both: "64 20"."""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import AsyncGenerator
from typing import Any

import uvloop

from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.interceptors import Context
from services.runtime.rpc.server import GrpcService, serving_grpc

# Any: the stubs want every RPC implemented, by synchronous functions.
_AgentServicer: Any = agent_pb2_grpc.AgentServiceServicer

RUN_ID = "3f0c0000-0000-4000-8000-000000000001"
BLOCK_ID = f"{RUN_ID}_c_1"


class Paced(_AgentServicer):
    """Sends at its own pace, whatever the reader does."""

    async def Query(self, request: agent_pb2.QueryRequest, context: Context) -> AsyncGenerator[agent_pb2.AgentDelta]:
        count, gap_ms = (int(word) for word in request.message.split())
        due_s = asyncio.get_running_loop().time()
        yield agent_pb2.AgentDelta(seq=1, run_start=agent_pb2.RunStart(run_id=RUN_ID, agent_key="paced"))
        yield agent_pb2.AgentDelta(seq=2, content_start=agent_pb2.ContentStart(content_id=BLOCK_ID, is_answer=True))
        for seq in range(3, count + 3):
            sent = agent_pb2.ContentDelta(content_id=BLOCK_ID, delta=f"@{time.perf_counter_ns()}@")
            yield agent_pb2.AgentDelta(seq=seq, timestamp=0, content_delta=sent)
            due_s += gap_ms / 1000
            if (wait_s := due_s - asyncio.get_running_loop().time()) > 0:
                await asyncio.sleep(wait_s)
        yield agent_pb2.AgentDelta(seq=count + 3, run_complete=agent_pb2.RunComplete(finish_reason="stop"))


async def serve(listen: str) -> None:
    """Serve until the process is stopped."""
    served = [GrpcService("headrace.v1.AgentService", Paced(), agent_pb2_grpc.add_AgentServiceServicer_to_server)]
    async with serving_grpc(ServerSettings(listen=listen, streams_max=2000), served):
        print(listen, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("listen")
    uvloop.run(serve(parser.parse_args().listen))
