"""The view for the model: what the next request of a run holds (memory.md, View for the model).

Earlier runs are windowed and shortened, the same way at every turn of this run; its own lines all stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import llm_pb2, memory_pb2
from services.memory.dialogue import Dialogue
from services.memory.facts import ASKED
from services.memory.lines import Line, Query, Step

if TYPE_CHECKING:
    from collections.abc import Iterable

MESSAGES_MIN, MESSAGES_MAX = 10, 100
"""Bounds of a window in messages."""

RESULT_CHARS_MAX = 1000
"""Of a tool result of an earlier run."""


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


def view(
    runs: Mapping[str, Sequence[Line]], request: memory_pb2.LoadContextRequest, window: Window
) -> list[llm_pb2.Message]:
    """The messages of the next request of `request.run_id`, system first, reminders last.

    `runs` are a chat's lines by run, runs in the order of their queries; lines of no run are under the empty id.

    Raises:
        NotFound: The chat has no such run.
    """
    run_id = request.run_id
    if run_id not in runs:
        raise NotFound(f"run {run_id} does not exist in chat {request.chat_id}", runId=run_id)
    messages: list[llm_pb2.Message] = []
    if request.system:
        messages.append(_text_message("system", request.system))
    context_id = request.context_id or None
    # A context of its own (a sub-agent's, a task's) begins with what its first step holds.
    if context_id is None:
        before = takewhile(lambda earlier: earlier != run_id, runs)
        messages += _earlier([runs[earlier] for earlier in before if earlier], window)
    messages += _messages(runs[run_id], context_id, with_reasoning=True)
    if request.reminders:
        _remind(messages, request.reminders)
    return messages


def _messages(lines: Iterable[Line], context_id: str | None, *, with_reasoning: bool) -> list[llm_pb2.Message]:
    dialogue = Dialogue(with_reasoning=with_reasoning)
    for line in lines:
        if isinstance(line, Query) and context_id is None:
            dialogue.ask(ASKED.decode(line.query).message)
        elif isinstance(line, Step) and line.context_id == context_id:
            dialogue.add(line.messages)
    return dialogue.messages()


def _earlier(runs: Sequence[Sequence[Line]], window: Window) -> list[llm_pb2.Message]:
    """The window over earlier runs. It begins with a user message, so it never cuts between a call and its results."""
    messages: list[llm_pb2.Message] = []
    for lines in islice(reversed(runs), window.runs_max):
        if len(messages) >= window.messages_max:
            break
        messages = _messages(lines, None, with_reasoning=False) + messages
    messages = messages[-window.messages_max :]
    first = next((index for index, message in enumerate(messages) if message.role == "user"), len(messages))
    return [_shortened(message) for message in messages[first:]]


def _shortened(message: llm_pb2.Message) -> llm_pb2.Message:
    """A message of an earlier run: images by name, long tool results cut."""
    for index, part in enumerate(message.content):
        if part.WhichOneof("part") == "image":
            message.content[index].CopyFrom(llm_pb2.ContentPart(text=_image_note(part.image)))
    if message.role == "tool":
        text = "".join(part.text for part in message.content)
        if len(text) > RESULT_CHARS_MAX:
            note = f"\n[shortened: the first {RESULT_CHARS_MAX:,} of {len(text):,} characters]"
            del message.content[:]
            message.content.add(text=text[:RESULT_CHARS_MAX] + note)
    return message


def _image_note(image: llm_pb2.ImagePart) -> str:
    if image.url.startswith("data:"):
        return "[image]"
    return f"[image: {image.url.rpartition('/')[2]}, {image.url}]"


def _remind(messages: list[llm_pb2.Message], reminders: Iterable[str]) -> None:
    """Add the one part that is not stored to the last user message, or after a message of another role."""
    text = "<system_reminder>\n" + "\n".join(reminders) + "\n</system_reminder>"
    if messages and messages[-1].role == "user":
        messages[-1].content.add(text=text)
    else:
        messages.append(_text_message("user", text))


def _text_message(role: str, text: str) -> llm_pb2.Message:
    return llm_pb2.Message(role=role, content=[llm_pb2.ContentPart(text=text)])
