"""A request to a server on its way: what comes of it before its answer."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeAlias

import mcp_types as types

from headrace.v1 import common_pb2
from services.tools.mcp_client.session import McpSession

PROGRESS_MAX = 100
"""Progress notes that wait for a slow reader; further ones are dropped."""

PROGRESS_CHARS_MAX = 1_000

ASKS_MAX = 64
"""Questions of one exchange, to a person and to the model together."""

SampleResult: TypeAlias = types.CreateMessageResult | types.ErrorData


@dataclass(eq=False, slots=True)
class Sampled:
    """A question to the model, which whoever executes the call answers."""

    params: types.CreateMessageRequestParams
    result: asyncio.Future[SampleResult]


ExchangeEvent: TypeAlias = str | Sampled | common_pb2.InputNeed | None
"""A note of progress; that the model is asked, or a person; None: the exchange has ended."""


class Exchange:
    def __init__(self) -> None:
        self.events: asyncio.Queue[ExchangeEvent] = asyncio.Queue()
        """Bounded by PROGRESS_MAX and ASKS_MAX."""
        self.session: McpSession | None = None
        """There once the request may have been sent."""
        self.task: asyncio.Task[types.CallToolResult] | None = None
        self._asks = 0

    def start(self, work: Coroutine[Any, Any, types.CallToolResult]) -> None:
        self.task = asyncio.create_task(work)
        self.task.add_done_callback(lambda _: self.events.put_nowait(None))

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])

    async def note(self, progress: float, total: float | None, message: str | None) -> None:
        if self.events.qsize() < PROGRESS_MAX:
            share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
            self.events.put_nowait(f"{share} {message or ''}".strip()[:PROGRESS_CHARS_MAX] + "\n")

    def count_question(self) -> int:
        """Return its number; 0: there were too many."""
        self._asks += 1
        return self._asks if self._asks <= ASKS_MAX else 0

    async def sample(self, params: types.CreateMessageRequestParams) -> SampleResult:
        if not self.count_question():
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"a call may ask {ASKS_MAX} times")
        sampled = Sampled(params, asyncio.get_running_loop().create_future())
        self.events.put_nowait(sampled)
        return await sampled.result
