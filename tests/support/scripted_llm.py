"""A gateway that plays a script, on a real server: `async with serving_script(["Hel", Overloaded("…")]) as suite`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeAlias

from headrace.streams import reading
from headrace.v1 import llm_pb2, llm_pb2_grpc
from services.runtime.process.config import ServerSettings
from services.runtime.rpc import call_ids
from services.runtime.rpc.channels import open_channel
from services.runtime.rpc.server import GrpcService, RunningServer, serving_grpc
from tests.support.timing import within

Step: TypeAlias = str | float | Exception
"""A text to send, seconds to stay silent, or an error to raise."""

TEST_TIMEOUT_S = 100.0
SILENCE_S = 600.0
"""Longer than any test: a step that only leaving ends."""

NAME = "headrace.v1.LlmService"
REQUEST = llm_pb2.ChatRequest(provider_key="p", model="m", messages=[llm_pb2.Message(role="user")])
COUNT = llm_pb2.CountTokensRequest(provider_key="p", model="m")


class ScriptedLlm(llm_pb2_grpc.LlmServiceServicer):
    """Plays its steps for every call, and records how the last call was closed. ListModels is not implemented."""

    def __init__(self, steps: Iterable[Step]) -> None:
        self.steps = steps
        self.sent = 0
        self.opened_in: asyncio.Task[Any] | None = None
        self.closed_in: asyncio.Task[Any] | None = None
        self.opened, self.closed = asyncio.Event(), asyncio.Event()
        self.forwarded: tuple[tuple[str, str], ...] = ()

    async def StreamChat(self, request: Any, context: Any) -> AsyncGenerator[llm_pb2.LlmDelta]:
        self._open()
        try:
            for step in self.steps:
                if isinstance(step, str):
                    yield llm_pb2.LlmDelta(content=step)
                    self.sent += 1
                else:
                    await self._play(step)
        finally:
            self._close()

    async def CountTokens(self, request: Any, context: Any) -> llm_pb2.CountTokensResponse:
        """The number of texts in the script."""
        self._open()
        try:
            for step in self.steps:
                await self._play(step)
        finally:
            self._close()
        return llm_pb2.CountTokensResponse(tokens=len([step for step in self.steps if isinstance(step, str)]))

    def _open(self) -> None:
        self.opened_in = asyncio.current_task()
        self.forwarded = call_ids.forward_metadata()
        self.opened.set()

    def _close(self) -> None:
        self.closed_in = asyncio.current_task()
        self.closed.set()

    async def _play(self, step: Step) -> None:
        if isinstance(step, Exception):
            raise step
        if isinstance(step, float):
            await asyncio.sleep(step)


async def read(call: Any, into: list[str]) -> None:
    """Read a StreamChat to its end, or to its error."""
    async with reading(call) as deltas:
        async for delta in deltas:
            into.append(delta.content)


@dataclass(frozen=True, slots=True)
class Suite:
    """The scripted service and its caller's side."""

    llm: ScriptedLlm
    stub: llm_pb2_grpc.LlmServiceAsyncStub
    running: RunningServer

    async def wait_closed(self) -> None:
        """Wait until the handler is closed, which must take less than 500 ms, as the contract says."""
        async with within(0.5):
            await self.llm.closed.wait()


def build_service(llm: ScriptedLlm) -> GrpcService:
    return GrpcService(NAME, llm, llm_pb2_grpc.add_LlmServiceServicer_to_server)


@asynccontextmanager
async def serving_script(
    steps: Iterable[Step] = (), *, listen: str = "127.0.0.1:0", drain_s: float = 0.0, streams_max: int = 100
) -> AsyncGenerator[Suite]:
    """Serve a script inside the block."""
    llm = ScriptedLlm(steps)  # pyright: ignore[reportAbstractUsage] - ListModels is left out on purpose
    settings = ServerSettings(listen=listen, drain_s=drain_s, streams_max=streams_max)
    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving_grpc(settings, [build_service(llm)]) as running,
        open_channel(running.addresses[0]) as channel,
    ):
        yield Suite(llm, llm_pb2_grpc.LlmServiceStub(channel), running)
