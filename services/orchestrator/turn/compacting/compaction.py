"""Compacts a scope's context in memory, and publishes the progress.

A failed compaction ends nothing, and is not repeated until the context has grown.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractContextManager, ExitStack, aclosing
from dataclasses import dataclass

import structlog

from headrace.errors import BudgetExceeded, HeadraceError, PriceUnknown, StreamStalled
from headrace.streams import reading
from headrace.v1 import agent_pb2, llm_pb2, memory_pb2
from services.orchestrator import metrics, tracing
from services.orchestrator.agents.definition import ModelConfig
from services.orchestrator.agents.definition.parts import Memory
from services.orchestrator.money.summary_charges import SummaryCharges
from services.orchestrator.peers.models import CallNeeds, estimate_tokens, get_model_info, make_limits, measure_needs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.scope import Scope
from services.orchestrator.turn.compacting import mentioned_files
from services.runtime.rpc.peer_calls import translating_peer_errors

COMPACT_TIMEOUT_S = 3_700.0
"""Longer than memory's longest configurable summary timeout (HEADRACE_MEMORY_SUMMARY_TIMEOUT_S)."""

TIME_RATIO = 0.5
"""Share of the run's remaining time that a compaction before a turn may use; the turn needs the rest."""

GROWTH_RATIO = 1.1
"""Growth before a failed compaction is retried: from 0.8 of the limit, where it is due, at most three times."""

OVERTAKEN = "ALREADY_COMPACTED"
"""Reason if another compaction changed the context in the meantime, possibly before a model was called."""

REFUSALS = frozenset({"NOTHING_TO_COMPACT", "TOO_MANY_FAILURES", OVERTAKEN})
"""Reasons with which memory refuses before calling a model."""

CUT = "CUT"

UNTOLD = frozenset({CUT, "TIMEOUT", StreamStalled.reason})
"""Ends of memory's stream before it has reported all calls that a provider may have billed."""

INSTRUCTION_TOKENS = 2000
"""Allowance for the tokens that memory adds to the messages and the files."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class RequestFrame:
    tools: Sequence[llm_pb2.ToolSchema]
    info: llm_pb2.ModelInfo
    """The scope's model; only its name if the gateway did not answer."""

    limits: memory_pb2.ModelLimits


def make_window_settings(memory: Memory) -> memory_pb2.WindowSettings:
    return memory_pb2.WindowSettings(
        runs_max=memory.max_runs or 0,
        messages_max=memory.max_message_history or 0,
        older=memory.older,
        due_ratio=memory.threshold,
        kept_ratio=memory.kept_share,
        results_kept=memory.clear_results,
    )


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
        spending = self._run.spending
        if spending.model_calls_left <= calls_kept:
            return False
        request = await self._make_request(frame)
        request.trigger, request.base = "auto", loaded.base
        if turn is not None:
            request.turn = turn
        needs = await self._measure_needs(request, frame, loaded)
        with ExitStack() as stack:
            try:
                charges = stack.enter_context(self._reserve(request, needs, spending.model_calls_left - calls_kept))
            except (BudgetExceeded, PriceUnknown):
                return False  # tokens or money are spent: the turn itself will report it
            has_changed = await self._compact(request, charges, TIME_RATIO * spending.time_left_s)
        self._failed_at_tokens = 0 if has_changed else loaded.tokens
        return has_changed

    async def compact_after_run(self, frame: RequestFrame, loaded: memory_pb2.LoadContextResponse) -> bool:
        """Compact the chat of an ended run, within the rest of the run's budget; return whether it was done.

        Nothing changes without a summary. Memory charges the chat and stores the event for history, because the run's
        log is closed.
        """
        request = await self._make_request(frame)
        request.trigger, request.base, request.summary_only = "auto", loaded.base, True
        needs = await self._measure_needs(request, frame, loaded)
        kind = ""
        with (
            self._reserve(request, needs, self._run.spending.model_calls_left, "between_runs") as charges,
            tracing.start_compaction_span(request.trigger) as span,
        ):
            charges.limit(request)
            async with aclosing(self._stream_deltas(request, COMPACT_TIMEOUT_S)) as deltas:
                async for delta in deltas:
                    kind = delta.WhichOneof("delta") or kind
                    if delta.HasField("usage"):
                        charges.charge(delta.usage)
            tracing.mark_compaction_end(span, kind)
        metrics.COMPACTIONS.labels(request.trigger, kind).inc()
        return kind == "complete"

    async def compact_by_hand(self, frame: RequestFrame, loaded: memory_pb2.LoadContextResponse, hint: str) -> None:
        request = await self._make_request(frame)
        request.trigger, request.hint = "manual", hint
        needs = await self._measure_needs(request, frame, loaded)
        with self._reserve(request, needs, self._run.spending.model_calls_left) as charges:
            await self._compact(request, charges, self._run.spending.time_left_s)

    def _reserve(
        self, request: memory_pb2.CompactRequest, needs: CallNeeds, calls_left: int, moment: str = "in_run"
    ) -> AbstractContextManager[SummaryCharges]:
        writer = request.summary_model if request.HasField("summary_model") else request.limits
        window, agent_key = writer.context_window_tokens, self._scope.agent.key
        return SummaryCharges.reserve(self._run.spending, needs, window, calls_left, agent_key, moment)

    async def _measure_needs(
        self, request: memory_pb2.CompactRequest, frame: RequestFrame, loaded: memory_pb2.LoadContextResponse
    ) -> CallNeeds:
        messages = loaded.tokens or estimate_tokens(loaded.ByteSize())
        files = estimate_tokens(sum(file.ByteSize() for file in request.files))
        writer = request.summary_model if request.HasField("summary_model") else frame.limits
        model = ModelConfig(provider_key=writer.provider_key, model=writer.model)
        return await measure_needs(
            self._peers, model, messages + files + INSTRUCTION_TOKENS, is_priced=self._run.spending.needs_prices
        )

    async def _make_request(self, frame: RequestFrame) -> memory_pb2.CompactRequest:
        run = self._run
        request = memory_pb2.CompactRequest(
            chat_id=run.chat_id,
            run_id=run.id,
            context_id=self._scope.context_id,
            generation=run.log.generation,
            system=self._scope.system,
            tools=frame.tools,
            limits=frame.limits,
            window=make_window_settings(self._scope.agent.memory),
            summary_instructions=self._scope.agent.memory.summary.instructions,
        )
        writer = self._scope.agent.memory.summary
        if name := writer.model or frame.info.summary_model:
            provider_key = (writer.model and writer.provider_key) or frame.info.provider_key
            info = await get_model_info(self._peers, provider_key, name)
            request.summary_model.CopyFrom(make_limits(info))
        everything = memory_pb2.LoadContextRequest(
            chat_id=run.chat_id,
            run_id=run.id,
            context_id=self._scope.context_id,
            pending_query=run.pending_query,
            unfitted=True,
        )
        request.files.extend(await mentioned_files.collect_files(self._peers, everything))
        return request

    async def _compact(self, request: memory_pb2.CompactRequest, charges: SummaryCharges, timeout_s: float) -> bool:
        charges.limit(request)
        await self._run.state.wait_for_start()
        with tracing.start_compaction_span(request.trigger) as span:
            kind, reason = await self._record_deltas(request, charges, min(timeout_s, COMPACT_TIMEOUT_S))
            tracing.mark_compaction_end(span, kind)
        metrics.COMPACTIONS.labels(request.trigger, kind).inc()
        return kind in ("complete", "fallback") or reason == OVERTAKEN

    async def _record_deltas(
        self, request: memory_pb2.CompactRequest, charges: SummaryCharges, timeout_s: float
    ) -> tuple[str, str]:
        """Record a compaction's events; return the kind of its end, and the reason if it failed."""
        kind, reason = "", CUT
        try:
            async with aclosing(self._stream_deltas(request, timeout_s)) as deltas:
                async for delta in deltas:
                    if delta.HasField("usage"):
                        charges.charge(delta.usage)
                    else:
                        kind = delta.WhichOneof("delta") or ""
                        await self._scope.record(getattr(delta, kind))
                        if delta.fail.reason in REFUSALS:
                            charges.give_back_unless_charged()
                        reason = CUT if kind == "start" else delta.fail.reason
        finally:
            if reason in UNTOLD:
                charges.charge_untold()
        return kind, reason

    async def _stream_deltas(
        self, request: memory_pb2.CompactRequest, timeout_s: float
    ) -> AsyncGenerator[memory_pb2.CompactDelta]:
        """Stream memory's deltas; a broken stream counts as a failed compaction."""
        rpc = self._peers.memory.Compact(request, timeout=timeout_s)
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
