"""Requests a summary and commits its two lines; on any failure, neither is committed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog

from headrace.errors import HeadraceError, StaleLease
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.memory.compaction.draft import CompactionDraft, CompactionResult
from services.memory.compaction.pinned import collect_facts, find_first_request, find_intent, read_todos
from services.memory.compaction.plan import FALLBACK, SUMMARY
from services.memory.compaction.receipt import WrittenSummary, describe_receipt, read_usage, to_event
from services.memory.compaction.summary_requests import SummaryRequests
from services.memory.compaction.summary_writer import SummaryWriter
from services.memory.context.scopes import list_pins
from services.memory.context.source import get_position, select_source, select_whole
from services.memory.log import media
from services.memory.log.lines import (
    FAILED,
    Charge,
    CompactBoundary,
    CompactMetadata,
    CompactReceipt,
    CompactSummary,
    Known,
    RetainedFrom,
    make_stamp,
)
from services.memory.log.raw_json import dump_proto
from services.memory.log.views import SessionState
from services.runtime.usage import to_nano_usd

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2
    from headrace.v1.llm_pb2_grpc import LlmServiceAsyncStub
    from services.memory.chats.access import ChatAccess
    from services.memory.context.source import ContextSource
    from services.memory.context.token_counter import TokenCounters
    from services.memory.context.view import ContextWindow
    from services.memory.log.chat import Chat
    from services.memory.log.lines import Pin
    from services.memory.storage.engine import Engine

INTERRUPTED = "INTERRUPTED"
"""Failure of a compaction that ended before its summary was complete."""

OVERTAKEN = "ALREADY_COMPACTED"
"""Failure of a compaction after another one has changed its context since it became due."""

log = structlog.get_logger()


class Compactor:
    """Compacts a store's chats. Used on the event loop only; counting runs in threads."""

    def __init__(
        self,
        engine: Engine,
        access: ChatAccess,
        window: ContextWindow,
        counting: TokenCounters,
        llm: LlmServiceAsyncStub | None,
        timeout_s: float,
    ) -> None:
        self._engine = engine
        self._access = access
        self._window = window
        self._counting = counting
        self._llm = llm
        self._timeout_s = timeout_s

    async def compact(self, request: memory_pb2.CompactRequest) -> AsyncGenerator[memory_pb2.CompactDelta]:
        """Yield start, the summary's usage if known, and exactly one of complete, fallback and fail.

        Raises:
            NotFound: The chat or the run does not exist.
            StaleLease: The run has another owner.
        """
        chat = await self._access.load_working_chat(request.chat_id)
        draft = self._make_draft(chat, request)
        before = await asyncio.to_thread(lambda: draft.tokens)
        yield memory_pb2.CompactDelta(start=agent_pb2.CompactionStart(pre_tokens=before, **_describe_request(request)))
        is_overtaken = request.HasField("base") and request.base != draft.base.uuid
        if refusal := OVERTAKEN if is_overtaken else await asyncio.to_thread(draft.find_refusal):
            yield _report_failure(request, refusal)
            return
        model = request.summary_model if request.HasField("summary_model") else request.limits
        counter = self._counting.create_counter(chat, model)
        requests = SummaryRequests(draft, counter)
        prepare = partial(self._fill_media, chat.chat_id, model)
        writer = SummaryWriter(self._llm, requests, self._timeout_s, prepare)
        # A run under way is charged by its orchestrator.
        agent_key = run.agent_key if (run := chat.info.runs[request.run_id]).is_ended else None
        fault, end = INTERRUPTED, memory_pb2.CompactDelta()
        try:
            written: WrittenSummary | None = None
            async with aclosing(writer.write()) as items:
                async for item in items:
                    if isinstance(item, WrittenSummary):
                        written = item
                    else:
                        yield memory_pb2.CompactDelta(usage=item)
            assert written is not None, "it is yielded last"
            failure = written.failure
            draft = await self._follow_chat(draft)
            if failure:
                result = await asyncio.to_thread(draft.fall_back, written)
            else:
                entries = requests.entries if written.seen else ()
                result, failure = await asyncio.to_thread(draft.apply_summary, written, entries)
            end = _report_result(request, before, result, failure)
            if result.tokens >= before:
                fault = "NOTHING_TO_COMPACT"
            elif failure and request.summary_only:
                fault = failure
            else:
                is_done = await self._commit_unless_overtaken(draft, result, failure, agent_key)
                fault = "" if is_done else OVERTAKEN
        finally:
            if fault and agent_key is not None:
                await self._charge_failure(draft, writer, fault, agent_key)
        yield _report_failure(request, fault) if fault else end

    def _make_draft(self, chat: Chat, request: memory_pb2.CompactRequest) -> CompactionDraft:
        runs = chat.copy_runs()
        source = select_source(runs, request.run_id, request.context_id or None)
        todos = read_todos(chat.states.get(request.context_id, SessionState()))
        whole = select_whole(runs, source.run_id, source.context_id)
        facts = collect_facts(source, find_first_request(whole), find_intent(whole), todos)
        counter = self._counting.create_counter(chat, request.limits)
        base = chat.bases.find(source.context_id)
        pins = _list_pins(chat, source)
        is_ended = chat.info.runs[request.run_id].is_ended
        return CompactionDraft(source, request, self._window.resize(request), counter, facts, base, pins, is_ended)

    async def _follow_chat(self, draft: CompactionDraft) -> CompactionDraft:
        """Return the draft with the pins and edits made in the meantime."""
        chat = await self._access.load_working_chat(draft.request.chat_id)
        if chat.bases.find(draft.source.context_id) != draft.base:
            return draft  # it will not be committed
        source = select_source(chat.copy_runs(), draft.source.run_id, draft.source.context_id)
        return draft.update(source.compacted, _list_pins(chat, source))

    def _fill_media(self, chat_id: str, model: memory_pb2.ModelLimits, request: llm_pb2.ChatRequest) -> None:
        media.fill_media(request.messages, partial(self._engine.blobs.find, chat_id), model.capabilities)

    async def _charge_failure(self, draft: CompactionDraft, writer: SummaryWriter, fault: str, agent_key: str) -> None:
        """Log the cost of calls without a result, even if no client waits for the compaction any more."""
        usage = await asyncio.to_thread(writer.sum_usage)
        if usage is None:
            return
        receipt = CompactReceipt(0, 0, 0, 0, usage.model_calls, usage=dump_proto(usage))
        tokens = draft.tokens
        metadata = CompactMetadata(draft.request.trigger or "manual", tokens, tokens, [], FAILED, receipt, fault)
        line = _make_boundary(draft, "", metadata)
        line.charges = [_make_charge(agent_key, draft.request, usage)]
        try:
            await self._engine.chats.append(draft.request.chat_id, [line], 0)
        except HeadraceError as error:  # which must not take the place of a cancellation
            log.warning("failed compaction not charged", chat_id=draft.request.chat_id, reason=error.reason)

    async def _commit_unless_overtaken(
        self, draft: CompactionDraft, result: CompactionResult, failure: str, agent_key: str | None
    ) -> bool:
        """Commit the result unless the context changed; return whether it did. `agent_key` is charged, or the run if it
        is None."""
        strategy = FALLBACK if failure else SUMMARY
        chat_id, context_id = draft.request.chat_id, draft.source.context_id
        run = (await self._access.load_working_chat(chat_id)).info.runs[draft.request.run_id]
        # An ended run accepts no lines, so a compaction after it belongs to the chat itself.
        metadata = CompactMetadata(
            draft.request.trigger or "manual",
            draft.tokens,
            result.tokens,
            result.files,
            strategy,
            result.receipt,
            failure,
        )
        lines = _make_lines(draft, result, metadata, "" if run.is_ended else run.run_id)
        if agent_key is not None and (usage := read_usage(result.receipt)) is not None:
            lines[0].charges = [_make_charge(agent_key, draft.request, usage)]
        try:
            await self._engine.chats.append(chat_id, lines, len(result.content) * 4)
        except StaleLease:
            if (await self._access.load_working_chat(chat_id)).info.bases.find(context_id) == draft.base:
                raise
            return False
        log.info(
            "context compacted",
            strategy=strategy,
            trigger=draft.request.trigger,
            pre_tokens=draft.tokens,
            post_tokens=result.tokens,
            **describe_receipt(result.receipt),
        )
        return True


def _make_lines(
    draft: CompactionDraft, result: CompactionResult, metadata: CompactMetadata, run_id: str
) -> list[Known]:
    request, groups = draft.request, result.plan.groups
    start = get_position(groups[result.plan.start])
    last = get_position(groups[result.plan.start - 1]).n if result.plan.start else start.n
    lines = (line for run in (*draft.source.before, draft.source.lines) for line in run)
    boundary = _make_boundary(draft, run_id, metadata, lines=2)
    summary = CompactSummary(
        **make_stamp(request.chat_id, run_id, request.generation),
        parent_uuid=boundary.uuid,
        logical_parent_uuid=next((line.uuid for line in lines if line.n == last), ""),
        role="user",
        is_compact_summary=True,
        content=result.content,
        retained_from=RetainedFrom(start.n, start.message),
        tokens=result.content_tokens,
    )
    return [boundary, summary]


def _make_boundary(
    draft: CompactionDraft, run_id: str, metadata: CompactMetadata, *, lines: int = 1
) -> CompactBoundary:
    return CompactBoundary(
        **make_stamp(draft.request.chat_id, run_id, draft.request.generation),
        lines=lines,
        parent_uuid=draft.base.uuid,
        redactions=draft.base.redactions,
        type="system",
        subtype="compact_boundary",
        role="system",
        content="Conversation not compacted" if metadata.strategy == FAILED else "Conversation compacted",
        compact_metadata=metadata,
        context_id=draft.source.context_id,
    )


def _make_charge(agent_key: str, request: memory_pb2.CompactRequest, usage: common_pb2.Usage) -> Charge:
    writer = request.summary_model if request.HasField("summary_model") else request.limits
    return Charge(
        agent_key,
        f"{writer.provider_key}/{writer.model}".strip("/"),
        usage.input_tokens,
        usage.output_tokens,
        usage.cached_tokens,
        usage.model_calls,
        to_nano_usd(usage.cost_usd),
        usage.reasoning_tokens,
        usage.cache_write_tokens,
        usage.estimated,
    )


def _list_pins(chat: Chat, source: ContextSource) -> list[Pin]:
    return list_pins(chat.model_runs.get("", ())) if source.scope.is_main else []


def _describe_request(request: memory_pb2.CompactRequest) -> dict[str, Any]:
    turn = {"turn": request.turn} if request.HasField("turn") else {}
    return {"chat_id": request.chat_id, "trigger": request.trigger or "manual", **turn}


def _report_failure(request: memory_pb2.CompactRequest, reason: str) -> memory_pb2.CompactDelta:
    return memory_pb2.CompactDelta(fail=agent_pb2.CompactionFail(chat_id=request.chat_id, reason=reason))


def _report_result(
    request: memory_pb2.CompactRequest, before: int, result: CompactionResult, failure: str
) -> memory_pb2.CompactDelta:
    fields: dict[str, Any] = {
        **_describe_request(request),
        "pre_tokens": before,
        "post_tokens": result.tokens,
        "files_included": result.files,
        "receipt": to_event(result.receipt),
    }
    if failure:
        return memory_pb2.CompactDelta(fallback=agent_pb2.CompactionFallback(**fields, reason=failure))
    return memory_pb2.CompactDelta(complete=agent_pb2.CompactionComplete(**fields))
