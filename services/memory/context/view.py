"""The messages of a run's next request: everything since the last compaction, with reminders after the last message.

Long results of earlier runs are shortened, in the same way throughout this run; its own messages stay complete while
they fit. A step keeps the reminders that its model saw, so that later requests begin with the same bytes.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2
from services.memory.context.fitting import SHORTENED, get_last_n, make_notice, shorten_result
from services.memory.context.pairing import MessageGroup, PairedMessage, flatten_groups, make_text_message
from services.memory.context.source import get_position
from services.memory.log.media import describe_media, get_media, name_reader

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from headrace.v1 import memory_pb2
    from services.memory.context.source import ContextSource

MESSAGES_MIN = 10

RESULT_CHARS_MAX = 1000
"""Characters that earlier runs' tool results are cut to, and those cleared for their age."""

DUE_RATIO = 0.8
"""Share of the largest request at which a context is compacted before its next turn."""

KEPT_RATIO = 0.2
"""Share of the messages kept verbatim along with a summary."""

RUNS_BETWEEN = 10
"""Minimum runs between compactions for a cap, whatever the cap, because each costs a summary."""

DROP = "drop"


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """Caps and shares below the model's window; messages beyond a cap stay until they are compacted, unless `drops`."""

    runs_max: int
    messages_max: int
    drops: bool = False
    due_ratio: float = DUE_RATIO
    kept_ratio: float = KEPT_RATIO
    results_kept: int | None = None
    """Number of tool results kept complete once a compaction would be due; None: all."""

    def resize(self, request: memory_pb2.LoadContextRequest | memory_pb2.CompactRequest) -> ContextWindow:
        """Return the window with the settings of `request`; 0 keeps the current value."""
        given, messages_max = request.window, request.window.messages_max or request.message_history_max
        if messages_max and messages_max < MESSAGES_MIN:
            raise InvalidRequest.of("messagesMax", f"must be {MESSAGES_MIN} or more, or 0")
        if given.runs_max < 0:
            raise InvalidRequest.of("runsMax", "must be 0 or more")
        return ContextWindow(
            given.runs_max or self.runs_max,
            messages_max or self.messages_max,
            given.older == DROP,
            min(max(given.due_ratio or self.due_ratio, 0.1), 1.0),
            min(max(given.kept_ratio or self.kept_ratio, 0.05), 0.9),
            given.results_kept if given.HasField("results_kept") else None,
        )


UNBOUNDED = ContextWindow(sys.maxsize, sys.maxsize)


@dataclass(frozen=True, slots=True)
class ContextView:
    """The groups of a run's next request, in this order."""

    summary: MessageGroup | None
    notice: MessageGroup | None
    """The notice that replaces messages dropped for a cap; None if there are none."""
    earlier: list[MessageGroup]
    own: list[MessageGroup]

    @property
    def groups(self) -> list[MessageGroup]:
        first = [group for group in (self.summary, self.notice) if group is not None]
        return [*first, *self.earlier, *self.own]


def build_messages(system: str, groups: Sequence[MessageGroup]) -> list[llm_pb2.Message]:
    """Build a request: the system message first, unless empty."""
    messages = [make_text_message("system", system)] if system else []
    return messages + flatten_groups(groups)


def build_view(source: ContextSource, window: ContextWindow) -> ContextView:
    earlier, notice = source.read_earlier(), None
    if window.drops:
        shown = _cut_to_caps(source, window)
        if left := earlier[: len(earlier) - len(shown)]:
            notice = make_notice(get_position(left[0]).n, max(map(get_last_n, left)))
        earlier = shown
    elif source.compacted is None:
        earlier = _skip_to_question(earlier)
    summary = None if source.compacted is None else source.compacted.group
    return ContextView(summary, notice, [_shorten_group(group) for group in earlier], source.read_own_run())


def is_past_cap(source: ContextSource, view: ContextView, window: ContextWindow) -> bool:
    """Return whether the next run would see more than a cap allows, and enough runs have passed since the last
    compaction."""
    if window.drops or not source.scope.is_main:
        return False
    compacted = source.compacted
    runs = [*source.before, source.lines]
    since = len(runs) if compacted is None else sum(lines[0].n > compacted.summary.n for lines in runs if lines)
    if since < RUNS_BETWEEN:
        return False
    return len(runs) > window.runs_max or _count_messages([*view.earlier, *view.own]) > window.messages_max


def clear_results(view: ContextView, results_kept: int) -> ContextView:
    """Return the view with its older results shortened, `results_kept` at a time, so that requests in between share
    their first bytes."""
    places = [(index, call) for index, group in enumerate(view.own) for call in sorted(group.results)]
    batch = max(1, results_kept)
    cleared = set(places[: max(0, len(places) - results_kept) // batch * batch])
    own: list[MessageGroup] = []
    for index, group in enumerate(view.own):
        results = {
            call: shorten_result(answer, RESULT_CHARS_MAX) if (index, call) in cleared else answer
            for call, answer in group.results.items()
        }
        own.append(replace(group, results=results))
    return ContextView(view.summary, view.notice, view.earlier, own)


def _cut_to_caps(source: ContextSource, window: ContextWindow) -> list[MessageGroup]:
    compacted = source.compacted
    retained: list[list[MessageGroup]] = []
    later: list[list[MessageGroup]] = []
    count = 0
    for index, groups in enumerate(source.read_earlier_runs()):
        has_room = index < window.runs_max and count < window.messages_max
        if compacted is None and not has_room:
            break
        kept = [group for group in groups if compacted is not None and compacted.retains(group)]
        retained.append(kept)
        if has_room:
            later.append(groups[len(kept) :])
            count += _count_messages(later[-1])
    shown = _flatten_reversed(retained) + _cut_to_window(_flatten_reversed(later), window.messages_max)
    return shown if compacted is not None else _skip_to_question(shown)


def _flatten_reversed(runs: Sequence[list[MessageGroup]]) -> list[MessageGroup]:
    return [group for groups in reversed(runs) for group in groups]


def _cut_to_window(groups: list[MessageGroup], messages_max: int) -> list[MessageGroup]:
    count = _count_messages(groups)
    if count <= messages_max:
        return groups
    first = 0
    while count > messages_max:
        count -= _count_messages(groups[first : first + 1])
        first += 1
    return _skip_to_question(groups[first:])


def _skip_to_question(groups: list[MessageGroup]) -> list[MessageGroup]:
    first = next((index for index, group in enumerate(groups) if group.is_question), len(groups))
    return groups[first:]


def _count_messages(groups: Sequence[MessageGroup]) -> int:
    return sum(1 + len(group.head.message.tool_calls) for group in groups)


def _shorten_group(group: MessageGroup) -> MessageGroup:
    for paired in (group.head, *group.results.values()):
        where = "" if paired.at is None else name_reader(paired.message, paired.at.n)
        for index, part in enumerate(paired.message.content):
            if media := get_media(part):
                paired.message.content[index].CopyFrom(llm_pb2.ContentPart(text=describe_media(media, where)))
                paired.form = SHORTENED
    results = {index: shorten_result(answer, RESULT_CHARS_MAX) for index, answer in group.results.items()}
    return replace(group, results=results)


NO_MORE = "No longer so: what was said of {key} before."


def select_news(view: ContextView, current: Iterable[memory_pb2.Reminder], of_run: Collection[str]) -> dict[str, str]:
    """Return the reminders that the model cannot see in the view already, or for keys `of_run` in its own run."""
    seen, seen_in_run = _read_told(view.groups), _read_told(view.own)
    news: dict[str, str] = {}
    for reminder in current:
        key, text = reminder.key, reminder.text or NO_MORE.format(key=reminder.key)
        is_known = key in seen_in_run if key in of_run else seen.get(key) == text
        is_needless = key not in seen and (reminder.is_over or not reminder.text)
        if not is_known and not is_needless:
            news[key] = text
    return news


def tell(view: ContextView, texts: Mapping[str, str]) -> ContextView:
    """Return the view with `texts` added as reminders after its last message."""
    if not texts:
        return view
    nobody = MessageGroup(PairedMessage(llm_pb2.Message(role="user"), None))
    *before, last = view.own or view.earlier or [nobody]
    groups = [*before, replace(last, reminders=[*last.reminders, texts])]
    return replace(view, earlier=groups) if view.earlier and not view.own else replace(view, own=groups)


def _read_told(groups: Sequence[MessageGroup]) -> dict[str, str]:
    return {key: text for group in groups for reminder in group.reminders for key, text in reminder.items()}
