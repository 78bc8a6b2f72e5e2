"""LoadContext: the view of a request, counted, and made to fit the model's window."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.v1 import memory_pb2
from services.memory.compaction.pinned import intent_of, open_tasks
from services.memory.compaction.plan import is_due
from services.memory.context import recap
from services.memory.context.context_source import Story, story
from services.memory.context.context_view import View, Window, request_messages, view
from services.memory.context.reminders import reminder
from services.memory.context.token_counter import INLINE_BYTES_MAX
from services.memory.context.token_limits import request_tokens_max
from services.memory.context.truncation import check, fitted
from services.memory.log import images
from services.memory.log.lines import Known, Line
from services.runtime.tokens.encodings import is_loaded

if TYPE_CHECKING:
    from services.memory.context.token_counter import Counter, Counting
    from services.memory.log.blobs import Blob
    from services.memory.log.chat import Chat


class _Blocks(Exception):
    """An image is needed, which lies in a file."""


def _not_here(_: str) -> Blob | None:
    raise _Blocks


class Loading:
    """Builds requests. Touched on the event loop only; but for short chats the work is done in threads."""

    def __init__(self, window: Window, counting: Counting) -> None:
        self.window = window
        self._counting = counting

    async def load(
        self, chat: Chat, request: memory_pb2.LoadContextRequest, pending: Known | None, find: images.Find
    ) -> memory_pb2.LoadContextResponse:
        """The request's messages, with their tokens where its model's limits are given; `find` has their images. A
        `pending` query stands at the end, where the log does not have its run yet.
        """
        window = self.window.asked(request.message_history_max)
        runs = chat.copy_runs()
        if pending is not None and request.run_id not in runs:
            pending.n = len(chat.log) + 1
            runs[request.run_id] = [pending]
        told = story(runs, request.run_id, request.context_id or None)
        counter = self._counting.counter(chat, request.limits.model)
        is_short = chat.size_bytes + request.ByteSize() <= INLINE_BYTES_MAX and is_loaded(counter.encoding)
        response, count = await _done(partial(_loaded, runs, told, request, window), counter, find, is_short=is_short)
        if request.HasField("limits"):
            self._counting.asked(chat, told, request.limits.model, count)
        return response


async def _done(
    load: Callable[[Counter, images.Find], tuple[memory_pb2.LoadContextResponse, int]],
    counter: Counter,
    find: images.Find,
    *,
    is_short: bool,
) -> tuple[memory_pb2.LoadContextResponse, int]:
    """What `load` gives: at once where that is little work and needs no file, else in a thread."""
    if is_short:
        with suppress(_Blocks):
            return load(replace(counter, find=_not_here), _not_here)
    return await asyncio.to_thread(load, counter, find)


def _loaded(
    runs: Mapping[str, Sequence[Line]],
    told: Story,
    request: memory_pb2.LoadContextRequest,
    window: Window,
    counter: Counter,
    find: images.Find,
) -> tuple[memory_pb2.LoadContextResponse, int]:
    """The response, and what it costs before the model's ratio (0: not counted)."""
    shown = view(told, window)
    texts = list(request.reminders)
    if request.HasField("recap"):
        texts.append(_recapped(runs, told, shown, request, counter))
    reminding = reminder(texts)
    if request.HasField("limits"):
        response, count = _counted(told, shown, request, reminding, counter)
    else:
        messages = request_messages(request.system, shown.units, reminding)
        response, count = memory_pb2.LoadContextResponse(messages=messages), 0
    images.filled(response.messages, find)
    return response, count


def _recapped(
    runs: Mapping[str, Sequence[Line]],
    told: Story,
    shown: View,
    request: memory_pb2.LoadContextRequest,
    counter: Counter,
) -> str:
    """Condense what is shown of the run, and return what its model is reminded of."""
    tokens_max, window = recap.settings_of(request.recap)
    found = recap.insights(told, shown.own)
    goal, tasks = intent_of(runs, told), open_tasks(told.lines, told.context_id)
    last = [insight for _, insight in found[-window:]]
    recap.condense(found, window)
    return recap.active_part(goal, last, tasks, counter, request.system, tokens_max)


def _counted(
    told: Story, shown: View, request: memory_pb2.LoadContextRequest, reminding: str, counter: Counter
) -> tuple[memory_pb2.LoadContextResponse, int]:
    tokens_max = request_tokens_max(request.limits)
    frame = counter.frame(request.system, request.tools) + counter.reminder(reminding, shown.units)
    count = frame + counter.units(shown.units)
    # Before anything is left out to make it fit: what does not fit is due all the more.
    due = is_due(told, [*shown.earlier, *shown.own], counter, counter.scaled(count), tokens_max)
    left = shown.units
    if count > counter.unscaled(tokens_max):
        left = fitted(left, counter, counter.unscaled(tokens_max) - frame, summary=shown.summary is not None)
        count = frame + counter.units(left)
        user = max((counter.unit(unit) for unit in left if unit.role == "user"), default=0)
        check(counter.scaled(count), tokens_max, counter.frame(request.system, ()), user)
    messages = request_messages(request.system, left, reminding)
    tokens = counter.scaled(count)
    return memory_pb2.LoadContextResponse(messages=messages, compaction_due=due, tokens=tokens), count
