"""From a run's stored messages to messages that a model takes: pieces joined, every call followed by its result.

The pieces of one answer become one assistant message. A call that was never answered gets a typed result, and a
result that nobody asked for is dropped, whatever a crash or a cancel left in the log. Equal lines give equal bytes,
so that a provider's prefix cache keeps hitting.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.v1 import llm_pb2
from services.memory.messages import content

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.memory.lines import StoredMessage

INTERRUPTED = '{"ok":false,"error":"interrupted"}'
"""What a model is told of a call that has no result."""


@dataclass(slots=True)
class _Entry:
    """A message, and the results of its calls by their position."""

    message: llm_pb2.Message
    msg_id: str | None = None
    results: dict[int, llm_pb2.Message] = field(default_factory=dict[int, llm_pb2.Message])


class Dialogue:
    """Takes messages in the order of the log."""

    def __init__(self, *, with_reasoning: bool) -> None:
        """Without reasoning nothing of it stays: neither its text nor what the provider wants back with it. That is
        how earlier runs are shown, which another provider may have answered.
        """
        self._with_reasoning = with_reasoning
        self._entries: list[_Entry] = []
        self._open: dict[str, list[tuple[_Entry, int]]] = {}
        """Calls without a result, by id: ids are unique in one answer at best."""

    def ask(self, text: str) -> None:
        """A user message of one text."""
        self._entries.append(_Entry(llm_pb2.Message(role="user", content=[llm_pb2.ContentPart(text=text)])))

    def add(self, messages: Iterable[StoredMessage]) -> None:
        """The next messages of the log."""
        for message in messages:
            match message.role:
                case "assistant":
                    self._say(message)
                case "tool":
                    self._answer(message)
                case _:
                    self._entries.append(_Entry(llm_pb2.Message(role="user", content=content(message.content))))

    def messages(self) -> list[llm_pb2.Message]:
        """All messages, each with calls followed by exactly its results, in the order of its calls."""
        found: list[llm_pb2.Message] = []
        for entry in self._entries:
            message = entry.message
            if message.role == "assistant" and not message.content and not message.tool_calls:
                continue  # reasoning alone: providers refuse an assistant message that says nothing
            found.append(message)
            for index, call in enumerate(message.tool_calls):
                found.append(entry.results.get(index) or _result(call.id, call.name, INTERRUPTED))
        return found

    def _say(self, piece: StoredMessage) -> None:
        entry = self._entries[-1] if self._entries else None
        if entry is None or piece.msg_id is None or entry.msg_id != piece.msg_id or entry.results:
            entry = _Entry(llm_pb2.Message(role="assistant"), piece.msg_id)
            self._entries.append(entry)
        message = entry.message
        # An empty text says nothing, and some providers refuse it.
        message.content.extend(
            part for part in content(piece.content) if part.WhichOneof("part") != "text" or part.text
        )
        if self._with_reasoning:
            if piece.reasoning_content:
                message.reasoning_content += "".join(part.text for part in piece.reasoning_content)
            if piece.provider_state:
                message.provider_state = bytes(piece.provider_state).decode()
        for call in piece.tool_calls or ():
            waiting = self._open.setdefault(call.id, [])
            if waiting and waiting[0][0] is not entry:
                waiting.clear()  # a later answer uses the id again: the earlier call will get no result any more
            waiting.append((entry, len(message.tool_calls)))
            message.tool_calls.add(id=call.id, name=call.function.name, arguments=call.function.arguments)

    def _answer(self, piece: StoredMessage) -> None:
        call_id = piece.tool_call_id or ""
        if waiting := self._open.get(call_id):
            entry, index = waiting.pop(0)
            result = _result(call_id, entry.message.tool_calls[index].name)
            result.content.extend(content(piece.content) or [llm_pb2.ContentPart(text="")])
            entry.results[index] = result


def _result(call_id: str, name: str, text: str | None = None) -> llm_pb2.Message:
    parts = [] if text is None else [llm_pb2.ContentPart(text=text)]
    return llm_pb2.Message(role="tool", content=parts, tool_call_id=call_id, name=name)
