"""The view for the model: what the next request of a run holds (memory.md, View for the model).

Earlier runs are windowed and shortened, the same way at every turn of this run; its own messages all stay as they are.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2
from services.memory.context.message_pairing import Said, Unit, messages_of, text_message
from services.memory.context.reminders import remind
from services.memory.log.blobs import SCHEME

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.memory.context.context_source import Story

MESSAGES_MIN, MESSAGES_MAX = 10, 100
"""Bounds of a window in messages."""

RESULT_CHARS_MAX = 1000
"""Of a tool result of an earlier run."""

SHORTENED = "shortened"
"""The form of a message of an earlier run, where it differs from the whole."""


@dataclass(frozen=True, slots=True)
class Window:
    """How much of earlier runs a model sees."""

    runs_max: int
    messages_max: int

    def asked(self, messages_max: int) -> Window:
        """This window with the size that a request asks for; 0: no other."""
        if messages_max == 0:
            return self
        if not MESSAGES_MIN <= messages_max <= MESSAGES_MAX:
            raise InvalidRequest.of("messageHistoryMax", f"must be {MESSAGES_MIN} to {MESSAGES_MAX}, or 0")
        return Window(self.runs_max, messages_max)


UNBOUNDED = Window(sys.maxsize, sys.maxsize)


@dataclass(frozen=True, slots=True)
class View:
    """What the next request of a run is made of, in this order."""

    summary: Unit | None
    """Of what was compacted."""
    earlier: list[Unit]
    """Of earlier runs."""
    own: list[Unit]
    """Of the run itself."""

    @property
    def units(self) -> list[Unit]:
        return [*([] if self.summary is None else [self.summary]), *self.earlier, *self.own]


def request_messages(system: str, units: Sequence[Unit], reminder: str) -> list[llm_pb2.Message]:
    """The messages of a request: system first, the reminder last, each when it is not empty."""
    messages = [text_message("system", system)] if system else []
    messages += messages_of(units)
    remind(messages, reminder)
    return messages


def view(story: Story, window: Window) -> View:
    """What the next request is made of."""
    earlier = [_shortened(unit) for unit in _earlier(story, window)]
    if story.compacted is not None:
        return View(story.compacted.unit, earlier, story.own())
    return View(None, _from_user(earlier), story.own())


def _earlier(story: Story, window: Window) -> list[Unit]:
    """What a compaction kept of earlier runs, which stays, and the window over what came later."""
    compacted = story.compacted
    retained: list[list[Unit]] = []
    later: list[list[Unit]] = []
    count = 0
    for index, units in enumerate(story.earlier()):
        has_room = index < window.runs_max and count < window.messages_max
        if compacted is None and not has_room:
            break
        kept = [unit for unit in units if compacted is not None and compacted.retains(unit)]
        retained.append(kept)
        if has_room:
            later.append(units[len(kept) :])
            count += _count(later[-1])
    return _in_order(retained) + _windowed(_in_order(later), window.messages_max)


def _in_order(runs: Sequence[list[Unit]]) -> list[Unit]:
    """The units of runs that stand in reverse."""
    return [unit for units in reversed(runs) for unit in units]


def _windowed(units: list[Unit], messages_max: int) -> list[Unit]:
    """The last units, of so many messages at most; a cut is made before a user message."""
    count = _count(units)
    if count <= messages_max:
        return units
    first = 0
    while count > messages_max:
        count -= _count(units[first : first + 1])
        first += 1
    return _from_user(units[first:])


def _from_user(units: list[Unit]) -> list[Unit]:
    first = next((index for index, unit in enumerate(units) if unit.role == "user"), len(units))
    return units[first:]


def _count(units: Sequence[Unit]) -> int:
    """Messages of `units`."""
    return sum(1 + len(unit.said.message.tool_calls) for unit in units)


def _shortened(unit: Unit) -> Unit:
    """A unit of an earlier run: images by name, long tool results cut."""
    for said in (unit.said, *unit.answers.values()):
        for index, part in enumerate(said.message.content):
            if part.WhichOneof("part") == "image":
                said.message.content[index].CopyFrom(llm_pb2.ContentPart(text=_image_note(part.image)))
                said.form = SHORTENED
    for answer in unit.answers.values():
        _shorten_result(answer)
    return unit


def _shorten_result(said: Said) -> None:
    text = "".join(part.text for part in said.message.content)
    if len(text) > RESULT_CHARS_MAX:
        note = f"\n[shortened: the first {RESULT_CHARS_MAX:,} of {len(text):,} characters]"
        del said.message.content[:]
        said.message.content.add(text=text[:RESULT_CHARS_MAX] + note)
        said.form = SHORTENED


def _image_note(image: llm_pb2.ImagePart) -> str:
    if image.url.startswith(("data:", SCHEME)):
        return "[image]"
    return f"[image: {image.url.rpartition('/')[2]}, {image.url}]"
