"""Normalizes the fragments of providers' tool calls, and keeps the fields that a provider requires back with them.

Indexes count from 0; only a call's first fragment has id and name; arguments are one JSON text. Gemini 3 refuses a call
without its `extra_content` (https://ai.google.dev/gemini-api/docs/thought-signatures, 2026-11).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import orjson

from services.llm_gateway.protocols.common.tool_calls import CallIds, read_arguments
from services.llm_gateway.protocols.openai.frames import CallPart, Delta

_NULL = "null"

CALL_KIND: Final = "call_fields"
MESSAGE_KIND: Final = "message_fields"

AT: Final = "at"
"""Position of a call among those of its message, from 0."""

_CALL_FIELDS = ("extra_content", "provider_specific_fields")


@dataclass(frozen=True, slots=True)
class CallPiece:
    index: int
    arguments: str
    id: str = ""
    name: str = ""


class ToolCalls:
    """The calls of one answer; `taken` are the conversation's ids."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._ids = CallIds(taken)
        self._given_ids: list[str] = []
        self._by_index: dict[int, int] = {}
        """Our index of the newest call, by the provider's."""
        self._early: dict[int, tuple[str, str]] = {}
        """Ids and arguments received before the name, by the provider's index."""
        self._undecided: dict[int, str] = {}
        """Arguments that may be a leading `null`."""
        self.current_index: int | None = None
        """Our index of the last fragment's call; None before the call has a name."""

    @property
    def count(self) -> int:
        return len(self._given_ids)

    def convert_part(self, part: CallPart, position: int | None) -> CallPiece | None:
        """Normalize the fragment at `position` of several in a delta; None if it contains nothing new."""
        function = part.function
        # Servers of gpt-oss leave marks after names (https://github.com/vllm-project/vllm/pull/32633, 2026-01).
        name = ((function and function.name) or "").partition("<|")[0]
        arguments = read_arguments(function.arguments) if function is not None else ""
        index = self._find_call(part, name, position)
        if index is None:
            piece = self._begin_call(part, name, arguments)
            self.current_index = None if piece is None else piece.index
            return piece
        self.current_index = index
        if index in self._undecided:
            arguments = self._strip_null(index, arguments)
        return CallPiece(index, arguments) if arguments else None

    def take_rest(self) -> Iterator[CallPiece]:
        """Return the held arguments at the end; a lone `null` means none."""
        for index, held in self._undecided.items():
            if held not in ("", _NULL):
                yield CallPiece(index, held)
        self._undecided.clear()
        for given_id, arguments in self._early.values():
            if arguments:
                self._given_ids.append(given_id)
                yield CallPiece(self.count - 1, arguments, self._ids.make_unique(given_id))
        self._early.clear()

    def _find_call(self, part: CallPart, name: str, position: int | None) -> int | None:
        given_id, last = part.id or "", len(self._given_ids) - 1
        if part.index is None:
            if given_id in self._given_ids and given_id:
                return self._given_ids.index(given_id)
            begins = given_id or name or not self._given_ids
            # Several fragments without ids are those of all calls in their order.
            return None if begins else last if position is None else min(position, last)
        known = self._by_index.get(part.index)
        if known is None and not (given_id or name) and self._undecided.get(last) == "":
            # Arguments of the new call under another index, as LibreChat's agents send them.
            known = self._by_index[part.index] = last
        # One provider gives all parallel calls the index 0: another id with a name is another call.
        if known is not None and given_id and name and given_id != self._given_ids[known]:
            return None
        return known

    def _begin_call(self, part: CallPart, name: str, arguments: str) -> CallPiece | None:
        given_id = part.id or ""
        if part.index is not None:
            early_id, early_arguments = self._early.pop(part.index, ("", ""))
            given_id, arguments = given_id or early_id, early_arguments + arguments
            if not name:
                self._early[part.index] = given_id, arguments
                return None
            self._by_index[part.index] = len(self._given_ids)
        index = len(self._given_ids)
        self._given_ids.append(given_id)
        self._undecided[index] = ""
        arguments = self._strip_null(index, arguments)
        return CallPiece(index, arguments, self._ids.make_unique(given_id), name)

    def _strip_null(self, index: int, arguments: str) -> str:
        text = self._undecided[index] + arguments
        if _NULL.startswith(text):
            self._undecided[index] = text
            return ""
        del self._undecided[index]
        return text.removeprefix(_NULL) if text.startswith(_NULL + "{") else text


class OpaqueFields:
    def __init__(self) -> None:
        self._by_call: dict[int, dict[str, Any]] = {}
        self._message: dict[str, Any] = {}

    def add_call_fields(self, index: int | None, part: CallPart) -> None:
        """Keep the fields of a call's fragment by the call's position in the answer, because ids may be replaced
        later."""
        for name in _CALL_FIELDS:
            if index is not None and (value := _decode(getattr(part, name))):
                self._by_call.setdefault(index, {AT: index})[name] = value

    def add_message_fields(self, delta: Delta) -> None:
        if value := _decode(delta.extra_content):
            self._message["extra_content"] = value
        if delta.reasoning_opaque:
            self._message["reasoning_opaque"] = delta.reasoning_opaque

    def build_state(self) -> dict[str, list[dict[str, Any]]]:
        """Return the fields by kind, without empty kinds."""
        kinds = {CALL_KIND: [*self._by_call.values()], MESSAGE_KIND: [self._message] if self._message else []}
        return {kind: items for kind, items in kinds.items() if items}


def _decode(raw: Any) -> Any:
    return orjson.loads(bytes(raw)) if raw else None
