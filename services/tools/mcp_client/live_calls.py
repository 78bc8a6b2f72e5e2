"""A request in progress, and calls whose server asks questions while they run.

Before 2026-07-28 such a call has its own session, because a question does not identify its call. While a person is
asked, the call stays alive here, and continues when it is executed again; if this process ends first, its outcome is
unknown.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import mcp_types as types
from mcp import MCPError

from headrace.v1 import common_pb2, tools_pb2
from services.tools.mcp_client.questions import NO_PERSON, list_roots, make_need, make_response
from services.tools.mcp_client.sdk_errors import ServerFailed
from services.tools.mcp_client.session import McpSession, SessionHandlers
from services.tools.mcp_client.settings import Server

PROGRESS_MAX = 100
"""Maximum progress notes that wait for a slow reader; further ones are dropped."""

PROGRESS_CHARS_MAX = 1_000

ASKS_MAX = 64
"""Maximum questions of one exchange, to a person and to the model together."""

SampleResult: TypeAlias = types.CreateMessageResult | types.ErrorData

LIVE_MAX = 64
"""Maximum calls of a server that wait for people; each has a connection, or a process."""

WAIT_S = 3600.0
"""How long a call stays alive without an answer."""

VISITS_MAX = 4
"""Maximum addresses that a call may require the user to visit."""

LIVE = "live"
"""State stored in the call's record."""


@dataclass(eq=False, slots=True)
class Sampled:
    """A question to the model, answered by the task that executes the call."""

    params: types.CreateMessageRequestParams
    result: asyncio.Future[SampleResult]


ExchangeEvent: TypeAlias = str | Sampled | common_pb2.InputNeed | None
"""A progress note; a question to the model or a person; None: the exchange has ended."""


class Exchange:
    def __init__(self) -> None:
        self.events: asyncio.Queue[ExchangeEvent] = asyncio.Queue()
        """Bounded by PROGRESS_MAX and ASKS_MAX."""
        self.session: McpSession | None = None
        """Set once the request may have been sent."""
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
        """Return the question's number; 0 if there were too many."""
        self._asks += 1
        return self._asks if self._asks <= ASKS_MAX else 0

    async def sample(self, params: types.CreateMessageRequestParams) -> SampleResult:
        if not self.count_question():
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"a call may ask {ASKS_MAX} times")
        sampled = Sampled(params, asyncio.get_running_loop().create_future())
        self.events.put_nowait(sampled)
        return await sampled.result


class LiveCall:
    """An exchange in a session in which the server may ask questions."""

    def __init__(self, server: str, granted: Server, request: tools_pb2.ExecuteRequest) -> None:
        self.exchange = Exchange()
        self._server = server
        self._granted = granted
        self._can_wait = bool(request.effect_key)  # under which it is executed again
        self._asked: dict[str, asyncio.Future[types.ElicitResult]] = {}
        self._answers: dict[str, tools_pb2.InputAnswer] = {}
        self.answer(request.answers)

    def make_handlers(self) -> SessionHandlers:
        granted = self._granted
        return SessionHandlers(
            sampling=(lambda context, params: self.exchange.sample(params)) if granted.sampling is not None else None,
            elicitation=(lambda context, params: self.elicit(params)) if granted.elicitation else None,
            roots=(lambda context: list_roots(granted.roots)) if granted.roots else None,
        )

    def answer(self, answers: Iterable[tools_pb2.InputAnswer]) -> None:
        self._answers |= {answer.name: answer for answer in answers}
        for name, future in self._asked.items():
            if name in self._answers and not future.done():
                future.set_result(make_response(self._answers[name]))

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """Wait for a person's answer; an error is sent to the server."""
        number = self.exchange.count_question() if self._can_wait else 0
        need = make_need(self._server, str(number), params) if number else NO_PERSON
        if isinstance(need, types.ErrorData):
            return need
        if need.name in self._answers:  # to the same question of an attempt that was lost
            return make_response(self._answers[need.name])
        self._asked[need.name] = asyncio.get_running_loop().create_future()
        self.exchange.events.put_nowait(need)
        return await self._asked[need.name]


async def send_after_visits(
    call: LiveCall, send: Callable[[], Coroutine[Any, Any, types.CallToolResult]]
) -> types.CallToolResult:
    """Send the call, and again after a person has visited the addresses that its server requires."""
    try:
        return await send()
    except MCPError as error:
        if error.error.code != types.URL_ELICITATION_REQUIRED:
            raise
        wanted = types.ElicitationRequiredErrorData.model_validate(error.error.data)
        for visit in wanted.elicitations[:VISITS_MAX]:
            answer = await call.elicit(visit)
            if isinstance(answer, types.ErrorData) or answer.action != "accept":
                raise
    return await send()


class LiveCalls:
    """The calls of one server that wait for people, by chat and effect key."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], tuple[LiveCall, asyncio.TimerHandle]] = {}

    def keep(self, request: tools_pb2.ExecuteRequest, call: LiveCall) -> None:
        """Keep a call until it is taken, or WAIT_S has passed. Raises ServerFailed if there are too many."""
        if len(self._kept) >= LIVE_MAX:
            raise ServerFailed(f"{LIVE_MAX} of its calls wait for people already; try again later")
        key = request.chat_id, request.effect_key
        self._kept[key] = call, asyncio.get_running_loop().call_later(WAIT_S, self._drop, key)

    def take(self, request: tools_pb2.ExecuteRequest) -> LiveCall | None:
        call, expiry = self._kept.pop((request.chat_id, request.effect_key), (None, None))
        if expiry is not None:
            expiry.cancel()
        return call

    def stop(self) -> None:
        for key in list(self._kept):
            self._drop(key)

    def _drop(self, key: tuple[str, str]) -> None:
        call, expiry = self._kept.pop(key)
        expiry.cancel()
        if call.exchange.task is not None:
            call.exchange.task.cancel()
