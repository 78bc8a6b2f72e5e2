"""The arguments of a call: one JSON text in our deltas, and an object in some protocols."""

from __future__ import annotations

from typing import Any

import msgspec
import orjson

_decode_text = msgspec.json.Decoder(str).decode


def read_arguments(raw: msgspec.Raw) -> str:
    """Return the text of arguments that came as a text, an object or null."""
    data = bytes(raw)
    if data.startswith(b'"'):
        return _decode_text(data)
    return "" if data == b"null" else data.decode()


def parse_input(text: str) -> Any:
    """Return the input of a tool, numbers as the model wrote them; an empty one of an answer that was cut."""
    try:
        is_object = isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        is_object = False
    return orjson.Fragment(text) if is_object else {}
