"""Fragments of tool calls as providers really send them, made into the contract's form.

Out: indexes count calls from 0 in order of appearance; id and name stand in a call's first fragment and nowhere else;
ids are unique in the whole conversation.
"""

from __future__ import annotations

from secrets import token_hex
from typing import TYPE_CHECKING

import msgspec

from headrace.v1 import llm_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.llm_gateway.openai_frames import CallPart, Function

_decode_text = msgspec.json.Decoder(str).decode


class ToolCalls:
    """The calls of one answer. `taken` are the ids that the conversation has already."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)
        self._given_ids: list[str] = []
        """The provider's id of each call; empty where it gave none."""
        self._by_index: dict[int, int] = {}
        """Provider's index to ours; the newest call of that index."""

    @property
    def count(self) -> int:
        """Calls begun so far."""
        return len(self._given_ids)

    def delta(self, part: CallPart) -> llm_pb2.ToolCallDelta | None:
        """The delta for a fragment; None when it carries nothing new."""
        name = (part.function and part.function.name) or ""
        arguments = _text(part.function)
        index = self._index_of(part, name)
        if index is None:
            return self._first(part, name, arguments)
        return llm_pb2.ToolCallDelta(index=index, arguments=arguments) if arguments else None

    def _index_of(self, part: CallPart, name: str) -> int | None:
        """Which call a fragment belongs to; None: it begins one."""
        given_id = part.id or ""
        if part.index is None:
            if given_id in self._given_ids and given_id:
                return self._given_ids.index(given_id)
            begins = given_id or name or not self._given_ids
            return None if begins else len(self._given_ids) - 1
        known = self._by_index.get(part.index)
        # One provider numbers all parallel calls 0: another id with a name is another call.
        if known is not None and given_id and name and given_id != self._given_ids[known]:
            return None
        return known

    def _first(self, part: CallPart, name: str, arguments: str) -> llm_pb2.ToolCallDelta:
        index = len(self._given_ids)
        self._given_ids.append(part.id or "")
        if part.index is not None:
            self._by_index[part.index] = index
        return llm_pb2.ToolCallDelta(index=index, id=self._unique(part.id or ""), name=name, arguments=arguments)

    def _unique(self, given_id: str) -> str:
        unique = given_id if given_id and given_id not in self._taken else f"call_{token_hex(8)}"
        self._taken.add(unique)
        return unique


def _text(function: Function | None) -> str:
    raw = bytes(function.arguments) if function is not None else b""
    if raw.startswith(b'"'):
        return _decode_text(raw)
    return "" if raw == b"null" else raw.decode()
