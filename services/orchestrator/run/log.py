"""A run's lines on their way to memory: numbered steps, and appends that are repeated until they are answered.

An append whose answer did not arrive is kept and sent again before the run ends, so that a cancel in the middle of a
commit neither loses nor doubles a line (Append is idempotent by its request id).
"""

from __future__ import annotations

import asyncio

import structlog

from headrace.errors import Overloaded, StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator import ids
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.runtime.rpc.call_ids import forward_metadata

REFUSED_DELAYS_S = (0.2, 1.0, 3.0)
"""When an append is sent again that memory refuses because its disk or database is behind, or away for the moment."""

log = structlog.get_logger()


class RunLog:
    """The log of one run, shared by its scopes."""

    def __init__(
        self, chat_id: str, run_id: str, peers: Peers, *, generation: int = 0, step: int = 0, covered_seq: int = 0
    ) -> None:
        """`step` and `covered_seq` are the last ones of the owner before."""
        self.generation = generation
        """Of our lease: memory takes nothing from owners with an earlier one."""
        self.is_lost = False
        """Another owner has the run, or has ended it: nothing is committed here any more."""
        self._chat_id = chat_id
        self._run_id = run_id
        self._peers = peers
        self._step = step
        self._covered_seq = covered_seq
        self._unanswered: dict[str, memory_pb2.AppendRequest] = {}
        self.updated_at = ids.now_ms()
        """When memory last answered, Unix milliseconds."""

    def step(self, stage: str, messages: list[memory_pb2.LogMessage], seq: int) -> memory_pb2.StepLine:
        """The run's next step; it covers every event up to `seq` that none before it does."""
        self._step += 1
        step = memory_pb2.StepLine(stage=stage, seq=self._step, messages=messages)
        if seq > self._covered_seq:
            step.events.first_seq, step.events.last_seq = self._covered_seq + 1, seq
            self._covered_seq = seq
        return step

    async def append(self, lines: list[memory_pb2.LogLine]) -> None:
        """Commit lines; they are on disk when this returns."""
        await self.commit(self.keep(lines))

    async def commit(self, request: memory_pb2.AppendRequest) -> None:
        """Send what `keep` has made, again where memory refuses it for the moment."""
        for delay_s in REFUSED_DELAYS_S:
            try:
                return await self.send(request)
            except Overloaded as error:
                log.warning("append refused, and sent again", run_id=self._run_id, said=error.message)
            await asyncio.sleep(delay_s)
        return await self.send(request)

    def keep(self, lines: list[memory_pb2.LogLine]) -> memory_pb2.AppendRequest:
        """Lines that `flush` commits."""
        request = memory_pb2.AppendRequest(
            chat_id=self._chat_id,
            run_id=self._run_id,
            generation=self.generation,
            request_id=ids.new_uuid(),
            lines=lines,
        )
        self._unanswered[request.request_id] = request
        return request

    async def flush(self) -> None:
        """Send every append again whose answer did not arrive, in order."""
        for request in [*self._unanswered.values()]:
            await self.send(request)

    def lose(self) -> None:
        """Another owner has the run: commit nothing any more."""
        self.is_lost = True

    async def send(self, request: memory_pb2.AppendRequest) -> None:
        """Commit what `keep` has made; may be repeated. Raises StaleLease: the run is another's."""
        try:
            with translating_peer_errors():
                await self._peers.memory.Append(request, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
        except StaleLease:
            self.lose()
            raise
        self.updated_at = ids.now_ms()
        self._unanswered.pop(request.request_id, None)
