"""A gateway with a model that returns the same summary at once, so that only memory's own work is measured."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc.server import GrpcService, serving_grpc


class Summariser(llm_pb2_grpc.LlmServiceServicer):
    def __init__(self, summary: str) -> None:
        self._summary = summary

    async def StreamChat(self, request: Any, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        yield llm_pb2.LlmDelta(content=f"<analysis>hm</analysis><summary>\n{self._summary}\n</summary>")
        yield llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason="stop"))


@asynccontextmanager
async def summarising(folder: Path, summary: str) -> AsyncGenerator[str]:
    """Serve the gateway inside the block and yield its address."""
    summariser = Summariser(summary)  # pyright: ignore[reportAbstractUsage] - its other RPCs are not called
    gateway = GrpcService("headrace.v1.LlmService", summariser, llm_pb2_grpc.add_LlmServiceServicer_to_server)
    async with serving_grpc(ServerSettings(listen=f"unix:{folder}/gateway.sock", drain_s=0), [gateway]) as server:
        yield server.addresses[0]
