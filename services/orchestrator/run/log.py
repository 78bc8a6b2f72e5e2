"""Sends a run's lines to memory as numbered steps, and the first turn's request along with its query line.

An unanswered append is sent again, which its request id makes idempotent, so that a cancel during a commit neither
loses nor duplicates a line. It is sent before any later one, so that the log has no result without its call.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from functools import partial

import structlog

from headrace.errors import HeadraceError, Overloaded, StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid

log = structlog.get_logger()


LOOP_TURNS_MAX = 20
"""Iterations of the event loop that the query line waits for the request, which takes a dozen if nothing must be
fetched."""


class FirstTurn:
    """The first turn of a run that begins work before its query is stored, on the assumption that its chat has no
    state."""

    def __init__(self) -> None:
        self.state: memory_pb2.GetStateResponse | None = None
        """The chat's actual state; None while it is assumed to be empty."""
        self._request: memory_pb2.LoadContextRequest | None = None
        self._is_sent = False
        self._loaded: asyncio.Future[memory_pb2.LoadContextResponse | None] = asyncio.get_running_loop().create_future()

    async def load_context(self, request: memory_pb2.LoadContextRequest) -> memory_pb2.LoadContextResponse | None:
        """Return the context that came with the stored query; None if memory must be asked separately."""
        if self._is_sent or self._request is not None:
            return None
        self._request = request
        return await self._loaded

    async def wait_for_request(self) -> memory_pb2.LoadContextRequest | None:
        """Return the request to send along; None if it takes longer, in which case later ones are not sent along."""
        for _ in range(LOOP_TURNS_MAX):
            if self._request is not None:
                break
            await asyncio.sleep(0)
        self._is_sent = True
        return self._request

    def take_answer(self, response: memory_pb2.BeginRunResponse) -> bool:
        """Pass the messages to the work; return False if the chat has a state, so that the work must begin again."""
        if not response.HasField("state") or response.state.state != "{}":
            self.state, self._request = response.state, None
            return False
        if not self._loaded.done():
            self._loaded.set_result(response.context if response.HasField("context") else None)
        return True


COMMIT_DELAYS_S = (0.0, 0.2, 1.0, 3.0)
"""Pauses before each commit attempt, because memory may be restarting, or its disk or database slow or down."""

AGAIN_S = 1.0
"""Pause between attempts of a patient commit."""

PATIENCE_S = 600.0
"""How long a patient commit is retried; longer outages need an operator."""


async def retry_commit(
    commit: Callable[[], Awaitable[None]],
    may_retry: Callable[[HeadraceError], bool],
    note_retry: Callable[[HeadraceError], None],
) -> None:
    """Commit, with retries after COMMIT_DELAYS_S as long as `may_retry` allows; raises the last error."""
    for delay_s in COMMIT_DELAYS_S:
        if delay_s:
            await asyncio.sleep(delay_s)
        try:
            return await commit()
        except HeadraceError as error:
            if delay_s == COMMIT_DELAYS_S[-1] or not may_retry(error):
                raise
            note_retry(error)
    return None


class RunLog:
    def __init__(
        self,
        chat_id: str,
        run_id: str,
        peers: Peers,
        charges: list[memory_pb2.Charge],
        release: Callable[[int], None],
        *,
        generation: int = 0,
        step: int = 0,
        covered_seq: int = 0,
    ) -> None:
        """Continue after `step` and `covered_seq`, at which the previous owner ended.

        Each append includes the lines in `charges`. `release` releases an event to readers, by its seq, once it is in
        the log.
        """
        self.generation = generation
        self.is_lost = False
        self._chat_id = chat_id
        self._run_id = run_id
        self._peers = peers
        self._charges = charges
        self._release = release
        self._step = step
        self._covered_seq = covered_seq
        self._unanswered: dict[str, memory_pb2.AppendRequest] = {}
        self._claimed: set[str] = set()
        """Requests that a task is about to send, or is sending; any task may send the others."""
        self._adopting = asyncio.Lock()
        self._held: list[memory_pb2.LogLine] = []
        self.updated_at = now_ms()
        """Unix milliseconds of memory's last response."""

    @property
    def is_settled(self) -> bool:
        """Whether memory has stored everything."""
        return not (self._unanswered or self._held or self._charges)

    def step(self, stage: str, messages: list[memory_pb2.LogMessage], seq: int) -> memory_pb2.StepLine:
        """Create a step that covers all events up to `seq` that no earlier step covers."""
        self._step += 1
        step = memory_pb2.StepLine(stage=stage, seq=self._step, messages=messages)
        if seq > self._covered_seq:
            step.events.first_seq, step.events.last_seq = self._covered_seq + 1, seq
            self._covered_seq = seq
        return step

    async def append(self, lines: list[memory_pb2.LogLine]) -> None:
        """Return when the lines are on disk."""
        await self.commit(self.keep(lines))

    async def commit(self, request: memory_pb2.AppendRequest) -> None:
        def note_retry(error: HeadraceError) -> None:
            log.warning("append refused, and sent again", run_id=self._run_id, said=error.message)

        await retry_commit(partial(self.send, request), lambda error: isinstance(error, Overloaded), note_retry)

    async def commit_patiently(self, request: memory_pb2.AppendRequest) -> None:
        """Commit lines that a person has seen or waits for, retrying while memory is unavailable.

        Raises memory's refusal, or its last error after PATIENCE_S.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + PATIENCE_S
        while True:
            try:
                return await self.commit(request)
            except HeadraceError as error:
                if not error.retriable or loop.time() > until_s:
                    raise
                log.warning("append not stored, and tried later", run_id=self._run_id, reason=error.reason)
            await asyncio.sleep(AGAIN_S)

    def hold(self, lines: list[memory_pb2.LogLine]) -> None:
        """Hold lines that nothing waits for; the next request includes them before its own."""
        self._held += lines

    async def commit_held(self) -> None:
        """Commit held lines, before the run does slow work or reads its log."""
        if self._held:
            await self.append([])

    def keep(self, lines: list[memory_pb2.LogLine]) -> memory_pb2.AppendRequest:
        lines, self._held = [*self._held, *lines], []
        if lines:
            lines[0].charges.extend(self._charges)
            self._charges.clear()
        request = memory_pb2.AppendRequest(
            chat_id=self._chat_id,
            run_id=self._run_id,
            generation=self.generation,
            request_id=new_uuid(),
            lines=lines,
        )
        self._unanswered[request.request_id] = request
        return request

    async def flush(self) -> None:
        if self._held:
            self.keep([])
        for request in [*self._unanswered.values()]:
            await self.send(request)

    def lose(self) -> None:
        self.is_lost = True

    async def send(self, request: memory_pb2.AppendRequest) -> None:
        """Send a request, which may be repeated, after earlier ones that no task is sending.

        Raises:
            StaleLease: Another owner has the run.
        """
        if request.request_id not in self._unanswered:
            return  # one of a later task has taken it along
        self._claimed.add(request.request_id)
        try:
            async with self._adopting:
                while (earlier := self._find_left(request)) is not None:
                    await self._send(earlier)
            await self._send(request)
        finally:
            self._claimed.discard(request.request_id)

    def _find_left(self, request: memory_pb2.AppendRequest) -> memory_pb2.AppendRequest | None:
        """Return the first unanswered request before this one that no task is sending."""
        earlier = itertools.takewhile(lambda one: one is not request, self._unanswered.values())
        return next((one for one in earlier if one.request_id not in self._claimed), None)

    async def _send(self, request: memory_pb2.AppendRequest) -> None:
        try:
            await self._peers.memory.Append(request)
        except StaleLease:
            self.lose()
            raise
        self.updated_at = now_ms()
        if self._unanswered.pop(request.request_id, None) is not None:
            for line in request.lines:
                if line.HasField("event"):
                    self._release(line.event.event.seq)
