"""LoadContext: a request's view, counted and fitted to the model's window."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.v1 import memory_pb2
from services.memory.compaction.pinned import find_intent, list_open_tasks
from services.memory.compaction.plan import is_due
from services.memory.context import recap
from services.memory.context.context_source import ContextSource, select_source
from services.memory.context.context_view import ContextView, ContextWindow, build_messages, build_view
from services.memory.context.reminders import format_reminder
from services.memory.context.token_counter import INLINE_BYTES_MAX
from services.memory.context.token_limits import get_request_tokens_max
from services.memory.context.truncation import check_fits, truncate_groups
from services.memory.log import images
from services.memory.log.lines import Known, Line
from services.runtime.tokens.encodings import is_loaded

if TYPE_CHECKING:
    from services.memory.context.token_counter import TokenCounter, TokenCounters
    from services.memory.log.blobs import Blob
    from services.memory.log.chat import Chat


class _NeedsFile(Exception):
    """An image must be read from a file."""


def _refuse_blob(_: str) -> Blob | None:
    raise _NeedsFile


class ContextLoader:
    """Builds requests, used on the event loop only; long chats are handled in threads."""

    def __init__(self, window: ContextWindow, counting: TokenCounters) -> None:
        self.window = window
        self._counting = counting

    async def load_context(
        self, chat: Chat, request: memory_pb2.LoadContextRequest, pending: Known | None, find: images.FindBlob
    ) -> memory_pb2.LoadContextResponse:
        """Return the request's messages, counted if its model's limits are given. A `pending` query is added if the log
        lacks its run."""
        window = self.window.resize(request.message_history_max)
        runs = chat.copy_runs()
        if pending is not None and request.run_id not in runs:
            pending.n = len(chat.log) + 1
            runs[request.run_id] = [pending]
        source = select_source(runs, request.run_id, request.context_id or None)
        counter = self._counting.create_counter(chat, request.limits.model)
        build = partial(_build_response, runs, source, request, window)
        built: tuple[memory_pb2.LoadContextResponse, int] | None = None
        if chat.size_bytes + request.ByteSize() <= INLINE_BYTES_MAX and is_loaded(counter.encoding):
            with suppress(_NeedsFile):
                built = build(replace(counter, find=_refuse_blob), _refuse_blob)
        response, count = built or await asyncio.to_thread(build, counter, find)
        if request.HasField("limits"):
            self._counting.note_request(chat, source, request.limits.model, count)
        return response


def _build_response(
    runs: Mapping[str, Sequence[Line]],
    source: ContextSource,
    request: memory_pb2.LoadContextRequest,
    window: ContextWindow,
    counter: TokenCounter,
    find: images.FindBlob,
) -> tuple[memory_pb2.LoadContextResponse, int]:
    """Return the response, and its unscaled tokens (0: not counted)."""
    view = build_view(source, window)
    texts = list(request.reminders)
    if request.HasField("recap"):
        texts.append(_apply_recap(runs, source, view, request, counter))
    reminding = format_reminder(texts)
    if request.HasField("limits"):
        response, count = _fit_window(source, view, request, reminding, counter)
    else:
        messages = build_messages(request.system, view.groups, reminding)
        response, count = memory_pb2.LoadContextResponse(messages=messages), 0
    images.fill_images(response.messages, find)
    return response, count


def _apply_recap(
    runs: Mapping[str, Sequence[Line]],
    source: ContextSource,
    view: ContextView,
    request: memory_pb2.LoadContextRequest,
    counter: TokenCounter,
) -> str:
    tokens_max, window = recap.read_settings(request.recap)
    found = recap.collect_insights(source, view.own)
    goal, tasks = find_intent(runs, source), list_open_tasks(source.lines, source.context_id)
    last = [insight for _, insight in found[-window:]]
    recap.condense_results(found, window)
    return recap.format_active_part(goal, last, tasks, counter, request.system, tokens_max)


def _fit_window(
    source: ContextSource,
    view: ContextView,
    request: memory_pb2.LoadContextRequest,
    reminding: str,
    counter: TokenCounter,
) -> tuple[memory_pb2.LoadContextResponse, int]:
    tokens_max = get_request_tokens_max(request.limits)
    frame = counter.count_frame(request.system, request.tools) + counter.count_reminder(reminding, view.groups)
    count = frame + counter.count_groups(view.groups)
    # Before anything is left out to make it fit: what does not fit is due all the more.
    due = is_due(source, [*view.earlier, *view.own], counter, counter.to_model_tokens(count), tokens_max)
    left = view.groups
    if count > counter.from_model_tokens(tokens_max):
        left = truncate_groups(
            left, counter, counter.from_model_tokens(tokens_max) - frame, summary=view.summary is not None
        )
        count = frame + counter.count_groups(left)
        user = max((counter.count_group(group) for group in left if group.role == "user"), default=0)
        check_fits(counter.to_model_tokens(count), tokens_max, counter.count_frame(request.system, ()), user)
    messages = build_messages(request.system, left, reminding)
    tokens = counter.to_model_tokens(count)
    return memory_pb2.LoadContextResponse(messages=messages, compaction_due=due, tokens=tokens), count
