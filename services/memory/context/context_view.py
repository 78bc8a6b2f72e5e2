"""The messages of a run's next request.

Earlier runs are windowed and shortened, the same way all through this run; its own messages stay whole.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2
from services.memory.context.message_pairing import MessageGroup, PairedMessage, flatten_groups, make_text_message
from services.memory.context.reminders import append_reminder
from services.memory.log.blobs import SCHEME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.memory.context.context_source import ContextSource

MESSAGES_MIN, MESSAGES_MAX = 10, 100

RESULT_CHARS_MAX = 1000
"""Length that a tool result of an earlier run is cut to."""

SHORTENED = "shortened"


@dataclass(frozen=True, slots=True)
class ContextWindow:
    runs_max: int
    messages_max: int

    def resize(self, messages_max: int) -> ContextWindow:
        """Return the window with the requested size; 0 keeps this one's."""
        if messages_max == 0:
            return self
        if not MESSAGES_MIN <= messages_max <= MESSAGES_MAX:
            raise InvalidRequest.of("messageHistoryMax", f"must be {MESSAGES_MIN} to {MESSAGES_MAX}, or 0")
        return ContextWindow(self.runs_max, messages_max)


UNBOUNDED = ContextWindow(sys.maxsize, sys.maxsize)


@dataclass(frozen=True, slots=True)
class ContextView:
    """The groups of a run's next request, in this order."""

    summary: MessageGroup | None
    earlier: list[MessageGroup]
    own: list[MessageGroup]

    @property
    def groups(self) -> list[MessageGroup]:
        return [*([] if self.summary is None else [self.summary]), *self.earlier, *self.own]


def build_messages(system: str, groups: Sequence[MessageGroup], reminder: str) -> list[llm_pb2.Message]:
    """Build a request: system first, the reminder last, each unless empty."""
    messages = [make_text_message("system", system)] if system else []
    messages += flatten_groups(groups)
    append_reminder(messages, reminder)
    return messages


def build_view(source: ContextSource, window: ContextWindow) -> ContextView:
    earlier = [_shorten_group(group) for group in _select_earlier(source, window)]
    if source.compacted is not None:
        return ContextView(source.compacted.group, earlier, source.read_own_run())
    return ContextView(None, _skip_to_user(earlier), source.read_own_run())


def _select_earlier(source: ContextSource, window: ContextWindow) -> list[MessageGroup]:
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
    return _flatten_reversed(retained) + _cut_to_window(_flatten_reversed(later), window.messages_max)


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
    return _skip_to_user(groups[first:])


def _skip_to_user(groups: list[MessageGroup]) -> list[MessageGroup]:
    first = next((index for index, group in enumerate(groups) if group.role == "user"), len(groups))
    return groups[first:]


def _count_messages(groups: Sequence[MessageGroup]) -> int:
    return sum(1 + len(group.head.message.tool_calls) for group in groups)


def _shorten_group(group: MessageGroup) -> MessageGroup:
    for said in (group.head, *group.results.values()):
        for index, part in enumerate(said.message.content):
            if part.WhichOneof("part") == "image":
                said.message.content[index].CopyFrom(llm_pb2.ContentPart(text=_describe_image(part.image)))
                said.form = SHORTENED
    for answer in group.results.values():
        _shorten_result(answer)
    return group


def _shorten_result(said: PairedMessage) -> None:
    text = "".join(part.text for part in said.message.content)
    if len(text) > RESULT_CHARS_MAX:
        note = f"\n[shortened: the first {RESULT_CHARS_MAX:,} of {len(text):,} characters]"
        del said.message.content[:]
        said.message.content.add(text=text[:RESULT_CHARS_MAX] + note)
        said.form = SHORTENED


def _describe_image(image: llm_pb2.ImagePart) -> str:
    if image.url.startswith(("data:", SCHEME)):
        return "[image]"
    return f"[image: {image.url.rpartition('/')[2]}, {image.url}]"
