"""Calls of tools: their ids, unique in a conversation, and their arguments, one JSON text in our deltas."""

from __future__ import annotations

from collections.abc import Iterable
from secrets import token_hex
from typing import Any

import msgspec
import orjson

_decode_text = msgspec.json.Decoder(str).decode


class CallIds:
    def __init__(self, taken: Iterable[str]) -> None:
        self._taken = set(taken)

    def make_unique(self, given_id: str) -> str:
        """Return the provider's id, or one of ours if it is missing or repeated."""
        unique = given_id if given_id and given_id not in self._taken else f"call_{token_hex(8)}"
        self._taken.add(unique)
        return unique


def read_arguments(raw: msgspec.Raw) -> str:
    """Return the text of arguments that arrived as a text, an object or null."""
    data = bytes(raw)
    if data.startswith(b'"'):
        return _decode_text(data)
    return "" if data == b"null" else data.decode()


def parse_input(text: str) -> Any:
    """Return the input of a tool, with numbers as the model wrote them; empty for a cut answer."""
    try:
        is_object = isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        is_object = False
    return orjson.Fragment(text) if is_object else {}
