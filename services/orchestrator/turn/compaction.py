"""Compacts a scope's context in memory, and publishes the progress.

A failed compaction ends nothing, and is not repeated until the context has grown.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass

import structlog

from headrace.errors import BudgetExceeded, HeadraceError
from headrace.streams import reading
from headrace.v1 import agent_pb2, llm_pb2, memory_pb2
from services.orchestrator import metrics, tracing
from services.orchestrator.peers import model_info
from services.orchestrator.peers.stubs import Peers, translating_peer_errors
from services.orchestrator.run.scope import Scope
from services.orchestrator.turn import mentioned_files
from services.runtime.rpc.call_ids import forward_metadata

COMPACT_TIMEOUT_S = 60.0
"""Twice the time that memory waits for a summary, as it also counts and commits."""

GROWTH_RATIO = 1.1
"""From 0.8 of the limit, where it is due, a failed compaction is tried again at most three times."""

REFUSALS = frozenset({"NOTHING_TO_COMPACT", "TOO_MANY_FAILURES"})
"""Reasons for which memory refuses without asking a model."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RequestFrame:
    tools: Sequence[llm_pb2.ToolSchema]
    limits: memory_pb2.ModelLimits
    summary_model: str
    """Empty for the scope's own model."""


class Compaction:
    def __init__(self, scope: Scope, peers: Peers) -> None:
        self._scope = scope
        self._run = scope.run
        self._peers = peers
        self._failed_at_tokens = 0

    def is_worth_trying(self, tokens: int) -> bool:
        return tokens >= GROWTH_RATIO * self._failed_at_tokens

    async def compact_before_turn(
        self, frame: RequestFrame, loaded: memory_pb2.LoadContextResponse, turn: int | None, *, calls_kept: int
    ) -> bool:
        """Compact if more than `calls_kept` model calls are left; return whether the context changed.

        `turn` is None at the run's entry.
        """
        if not self._reserve_call(calls_kept):
            return False
        request = await self._make_request(frame, loaded)
        request.trigger = "auto"
        if turn is not None:
            request.turn = turn
        has_changed = await self._compact(request)
        self._failed_at_tokens = 0 if has_changed else loaded.tokens
        return has_changed

    async def compact_by_hand(self, frame: RequestFrame, loaded: memory_pb2.LoadContextResponse, hint: str) -> None:
        self._run.spending.reserve_model_call()
        request = await self._make_request(frame, loaded)
        request.trigger, request.hint = "manual", hint
        await self._compact(request)

    def _reserve_call(self, calls_kept: int) -> bool:
        spending = self._run.spending
        if spending.model_calls_left <= calls_kept:
            return False
        try:
            spending.reserve_model_call()
        except BudgetExceeded:
            return False  # tokens or money are spent: the turn itself will report it
        return True

    async def _make_request(
        self, frame: RequestFrame, loaded: memory_pb2.LoadContextResponse
    ) -> memory_pb2.CompactRequest:
        run = self._run
        request = memory_pb2.CompactRequest(
            chat_id=run.chat_id,
            run_id=run.id,
            context_id=self._scope.context_id,
            generation=run.log.generation,
            system=self._scope.system,
            tools=frame.tools,
            limits=frame.limits,
            files=await mentioned_files.collect_files(self._peers, run.chat_id, loaded.messages),
            message_history_max=self._scope.agent.memory.max_message_history,
        )
        if frame.summary_model:
            info = await model_info.get_model_info(self._peers, frame.limits.provider_key, frame.summary_model)
            request.summary_model.CopyFrom(model_info.make_limits(info))
        return request

    async def _compact(self, request: memory_pb2.CompactRequest) -> bool:
        await self._run.state.wait_for_start()
        with tracing.start_compaction_span(request.trigger) as span:
            kind = await self._record_deltas(request)
            tracing.mark_compaction_end(span, kind)
        metrics.COMPACTIONS.labels(request.trigger, kind).inc()
        return kind in ("complete", "fallback")

    async def _record_deltas(self, request: memory_pb2.CompactRequest) -> str:
        spending, kind, was_billed = self._run.spending, "", False
        async with aclosing(self._stream_deltas(request)) as deltas:
            async for delta in deltas:
                if delta.HasField("usage"):
                    spending.settle(delta.usage)
                    was_billed = True
                else:
                    kind = delta.WhichOneof("delta") or ""
                    await self._scope.record(getattr(delta, kind))
                    if delta.fail.reason in REFUSALS and not was_billed:
                        spending.give_back_model_call()
        return kind

    async def _stream_deltas(self, request: memory_pb2.CompactRequest) -> AsyncGenerator[memory_pb2.CompactDelta]:
        """Stream memory's deltas; a broken stream counts as a failed compaction."""
        timeout_s = min(COMPACT_TIMEOUT_S, self._run.spending.time_left_s)
        rpc = self._peers.memory.Compact(request, timeout=timeout_s, metadata=forward_metadata())
        has_started = False
        try:
            with translating_peer_errors():
                async with reading(rpc) as deltas:
                    async for delta in deltas:
                        has_started = True
                        yield delta
        except HeadraceError as error:
            if not has_started:
                raise
            log.warning("context not compacted", run_id=self._run.id, reason=error.reason)
            yield memory_pb2.CompactDelta(fail=agent_pb2.CompactionFail(chat_id=request.chat_id, reason=error.reason))
