"""LoadContext: a request's view, counted and fitted to the model's window."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import ContextLengthExceeded
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.compaction.pinned import find_intent, list_open_tasks, read_question
from services.memory.compaction.plan import is_due, is_worth_a_summary
from services.memory.context import recap
from services.memory.context.fitting import FittedMessages, fit_groups
from services.memory.context.history_reader import READERS
from services.memory.context.pairing import WHOLE
from services.memory.context.parts import FittedRequest, add_compaction, add_parts
from services.memory.context.source import ContextSource, list_texts, select_source, select_whole
from services.memory.context.token_counter import INLINE_BYTES_MAX, get_request_tokens_max
from services.memory.context.view import (
    ContextView,
    ContextWindow,
    build_messages,
    build_view,
    clear_results,
    is_past_cap,
    select_news,
    tell,
)
from services.memory.log import media
from services.memory.log.lines import Known, Line
from services.runtime.tokens.count import is_loaded

GOAL_CHARS_MAX = 200
"""Maximum characters of the goal that recap repeats."""

RECAP = "recap"
"""Key of the reminder that recap adds."""

GOAL_OVER = "The goal and the open tasks that were named before no longer hold."

MARGIN_RATIO = 0.01
"""Share of the largest request left free when one is fitted, for tokens that providers add and we cannot count."""

if TYPE_CHECKING:
    from services.memory.context.pairing import MessageGroup
    from services.memory.context.token_counter import TokenCounter, TokenCounters
    from services.memory.log.chat import Chat
    from services.memory.log.media import Blob


class _NeedsFile(Exception):
    """Raised if an image must be read from a file."""


def _refuse_blob(_: str) -> Blob | None:
    raise _NeedsFile


class ContextLoader:
    """Builds requests. Used on the event loop only; long chats are processed in threads."""

    def __init__(self, window: ContextWindow, counting: TokenCounters) -> None:
        self.window = window
        self._counting = counting

    async def load_context(
        self, chat: Chat, request: memory_pb2.LoadContextRequest, pending: Known | None, find: media.FindBlob
    ) -> memory_pb2.LoadContextResponse:
        """Return the request's messages, counted if its model's limits are given. A `pending` query is added if the log
        lacks its run."""
        window = self.window.resize(request)
        runs = chat.copy_runs()
        if pending is not None and request.run_id not in runs:
            pending.n = len(chat.log) + 1
            runs[request.run_id] = [pending]
        source = select_source(runs, request.run_id, request.context_id or None)
        source = replace(source, keeps_reasoning=request.limits.keeps_reasoning)
        base = chat.bases.find(source.context_id).uuid
        counter = self._counting.create_counter(chat, request.limits)
        build = partial(_build_response, runs, source, request, window)
        built: tuple[memory_pb2.LoadContextResponse, int] | None = None
        if chat.size_bytes + request.ByteSize() <= INLINE_BYTES_MAX and is_loaded(counter.encoding):
            with suppress(_NeedsFile):
                built = build(replace(counter, find=_refuse_blob), _refuse_blob)
        response, count = built or await asyncio.to_thread(build, counter, find)
        response.base = base
        if request.with_parts:
            lines = list(chat.log)
            await asyncio.to_thread(add_compaction, response, lines, source.compacted, counter)
        if request.HasField("limits") and not request.with_parts:
            self._counting.note_request(chat, source, request.limits, count)
        return response


def _build_response(
    runs: Mapping[str, Sequence[Line]],
    source: ContextSource,
    request: memory_pb2.LoadContextRequest,
    window: ContextWindow,
    counter: TokenCounter,
    find: media.FindBlob,
) -> tuple[memory_pb2.LoadContextResponse, int]:
    """Return the response, and its unscaled tokens (0: not counted)."""
    if request.unfitted:
        return memory_pb2.LoadContextResponse(messages=list_texts(source)), 0
    view = build_view(source, window)
    system = "\n\n".join(text for text in (request.system, *source.instructions) if text)
    without_insight = _apply_recap(source, view, request, counter) if request.HasField("recap") else None
    goal = "" if without_insight is None else _describe_goal(runs, source, view, request, counter)
    reminder = memory_pb2.Reminder(key=RECAP, text=goal or GOAL_OVER, is_over=not goal)
    texts = select_news(view, [*request.current, reminder], request.current_of_run)
    unkeyed = {str(number): text for number, text in enumerate(request.reminders) if text}
    view = tell(view, texts | unkeyed)
    if request.HasField("limits"):
        response, count, shown = _fit_window(source, view, window, request, system, counter)
    else:
        shown = view.groups
        messages = build_messages(system, shown)
        response, count = memory_pb2.LoadContextResponse(messages=messages, has_left=_has_left(shown)), 0
    response.without_insight.extend(without_insight or ())
    response.reminded.extend(memory_pb2.Reminder(key=key, text=text) for key, text in texts.items())
    if request.with_parts:
        tools = _list_tools(request, has_left=response.has_left)
        fitted = FittedRequest(view, shown, system, tools)
        add_parts(response, runs, source, fitted, counter)
    if media.fill_media(response.messages, find, request.limits.capabilities):
        response.has_left = True
    return response, count


def _apply_recap(
    source: ContextSource, view: ContextView, request: memory_pb2.LoadContextRequest, counter: TokenCounter
) -> list[llm_pb2.Message] | None:
    """Replace older results by insights; return the results without one, or None if nothing is replaced."""
    # The same in all turns, whether a replacement has added the tools already. They come after the others, which stay
    # in the provider's cache.
    readers = [tool for tool in (*request.tools, *request.history_tools) if tool.name in READERS]
    before = view.groups[: len(view.groups) - len(view.own)]
    prefix_tokens = counter.count_frame(request.system, ()) + counter.count_groups(before)
    tools_tokens = counter.count_frame("", readers)
    return recap.condense_results(source, view.own, counter, request.recap, prefix_tokens, tools_tokens)


def _describe_goal(
    runs: Mapping[str, Sequence[Line]],
    source: ContextSource,
    view: ContextView,
    request: memory_pb2.LoadContextRequest,
    counter: TokenCounter,
) -> str:
    """Return a reminder of the goal and open tasks once results are replaced; empty if it is not needed."""
    goal = find_intent(select_whole(runs, source.run_id, source.context_id))
    tasks = list_open_tasks(source.lines, source.context_id)
    is_shown = any(read_question(group).startswith(goal.text) for group in view.own)
    return recap.format_active_part(
        "" if is_shown else goal.shorten(GOAL_CHARS_MAX), tasks, counter, request.recap, request.system
    )


def _fit_window(
    source: ContextSource,
    view: ContextView,
    window: ContextWindow,
    request: memory_pb2.LoadContextRequest,
    system: str,
    counter: TokenCounter,
) -> tuple[memory_pb2.LoadContextResponse, int, list[MessageGroup]]:
    tokens_max = get_request_tokens_max(request.limits)
    count = _count_request(view.groups, request, system, counter)
    if window.results_kept is not None and counter.to_model_tokens(count) >= window.due_ratio * tokens_max:
        view = clear_results(view, window.results_kept)
        count = _count_request(view.groups, request, system, counter)
    # Measured before anything is left out to fit, because a request that does not fit is certainly due.
    fill_ratio = counter.to_model_tokens(count) / tokens_max
    due = is_due(source, view, window, counter, counter.to_model_tokens(count), tokens_max)
    past_cap = is_past_cap(source, view, window) and is_worth_a_summary(view, window, counter)
    fitted = FittedMessages(view.groups)
    room = counter.from_model_tokens(tokens_max - int(MARGIN_RATIO * tokens_max))
    if count > room:
        frame = counter.count_frame(system, _list_tools(request, has_left=True))
        fitted = fit_groups(view.groups, counter, room - frame, summary=view.summary is not None)
        count = frame + counter.count_groups(fitted.groups)
    tokens = counter.to_model_tokens(count)
    if tokens > tokens_max:
        raise _make_length_error(tokens, tokens_max, counter, system, fitted.groups)
    response = memory_pb2.LoadContextResponse(
        messages=build_messages(system, fitted.groups),
        compaction_due=due,
        tokens=tokens,
        has_left=_has_left(fitted.groups),
        is_past_cap=past_cap,
        is_over=bool(fitted.notice),
        notice=fitted.notice,
        fill_ratio=fill_ratio,
    )
    return response, count, fitted.groups


def _count_request(
    groups: Sequence[MessageGroup], request: memory_pb2.LoadContextRequest, system: str, counter: TokenCounter
) -> int:
    tools = _list_tools(request, has_left=_has_left(groups))
    return counter.count_frame(system, tools) + counter.count_groups(groups)


def _make_length_error(
    tokens: int, tokens_max: int, counter: TokenCounter, system: str, groups: Sequence[MessageGroup]
) -> ContextLengthExceeded:
    """Create the error for a request that cannot be reduced further; it names the longest message's role."""
    user = max((counter.count_group(group) for group in groups if group.role == "user"), default=0)
    role = "system" if counter.count_frame(system, ()) > user else "user"
    return ContextLengthExceeded(
        f"the {role} message does not fit: the request has {tokens} tokens, the model takes {tokens_max}",
        currentTokens=tokens,
        maxTokens=tokens_max,
        role=role,
    )


def _list_tools(request: memory_pb2.LoadContextRequest, *, has_left: bool) -> Sequence[llm_pb2.ToolSchema]:
    return [*request.tools, *request.history_tools] if has_left else request.tools


def _has_left(groups: Sequence[MessageGroup]) -> bool:
    """Return whether any message is shortened or replaces others."""
    return any(paired.form not in WHOLE for group in groups for paired in group.list_messages())
