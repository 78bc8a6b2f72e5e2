r"""Decodes frames that deviate slightly from their protocol: unreadable parts are left out unless they are decisive.

Providers write numbers as texts and texts as numbers, and a list instead of an object
(https://github.com/BerriAI/litellm and https://github.com/vllm-project/vllm, issues, 2026-11). Some cut a character in
two: `"\ud83d"` in one frame, `"\ude00"` in the next. UTF-8 has no lone halves, so private characters represent them
until a channel's texts are joined.
"""

from __future__ import annotations

import re
import types
from collections.abc import Hashable
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import orjson

DECISIVE = frozenset(
    {
        "choices",
        "candidates",
        "parts",
        "function_call",
        "response",
        "output",
        "arguments",
        "delta",
        "message",
        "content",
        "text",
        "tool_calls",
        "partial_json",
        "finish_reason",
        "stop_reason",
        "error",
    }
)
"""Decisive fields, without which an answer would differ from the model's: an unreadable one breaks the stream."""

Decoded = TypeVar("Decoded")

_FIRST = 0xD800
_PRIVATE = 0xF0000
"""Plane 15 has no assigned characters."""

_ESCAPE = re.compile(
    rb"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u([dD][89a-fA-F][0-9a-fA-F]{2})|\\.", re.DOTALL
)
"""Matches any escape; the group is a lone half."""

_HIGH_HALF = re.compile("[\U000f0000-\U000f03ff]")
_HALVES = re.compile("[\U000f0000-\U000f07ff]+")


def decode_leniently(data: bytes, kind: type[Decoded]) -> Decoded:
    """Decode a frame of type `kind`, a struct.

    Raises:
        ValidationError: It is not a JSON object, or a decisive field cannot be read.
    """
    try:
        return _read(kind, orjson.loads(data))
    except (ValueError, OverflowError) as error:
        raise msgspec.ValidationError(str(error)) from error


def _read_struct(kind: type[Decoded], value: dict[str, Any]) -> Decoded:
    fields: dict[str, Any] = {}
    for name, field_kind, given_name in _list_fields(kind):
        if value.get(given_name) is None:
            continue
        try:
            fields[name] = _read(field_kind, value[given_name])
        except ValueError:
            if name in DECISIVE and value[given_name]:  # an empty value is not decisive
                raise
    return kind(**fields)


def _read(kind: Any, value: Any) -> Any:
    if get_origin(kind) in (types.UnionType, Union):
        return _read_one_of([one for one in get_args(kind) if one is not type(None)], value)
    if get_origin(kind) is list:
        if not isinstance(value, list):
            raise msgspec.ValidationError("not a list")
        return [_read(get_args(kind)[0], item) for item in value if item is not None]
    if kind is msgspec.Raw:
        return msgspec.Raw(orjson.dumps(value))
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        if not isinstance(value, dict):
            raise msgspec.ValidationError("not an object")
        return _read_struct(kind, value)
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return orjson.dumps(value).decode()
    if kind is int and isinstance(value, str | float):
        return int(float(value))
    return msgspec.convert(value, kind)


def _read_one_of(kinds: list[Any], value: Any) -> Any:
    for kind in kinds[:-1]:
        try:
            return _read(kind, value)
        except ValueError:
            continue
    return _read(kinds[-1], value)


@cache
def _list_fields(kind: type[msgspec.Struct]) -> list[tuple[str, Any, str]]:
    """Return each field's name, type and name in the frame."""
    kinds = get_type_hints(kind)
    return [(field.name, kinds[field.name], field.encode_name) for field in msgspec.structs.fields(kind)]


def mark_lone_halves(data: bytes) -> bytes:
    return _ESCAPE.sub(_mark_half, data)


def _mark_half(match: re.Match[bytes]) -> bytes:
    half = match[1]
    return match[0] if half is None else chr(int(half, 16) - _FIRST + _PRIVATE).encode()


class HalfJoiner:
    def __init__(self) -> None:
        self._held: dict[Hashable, str] = {}

    def join_text(self, channel: Hashable, text: str) -> str:
        """Join `text` to its channel's held half; a first half at its end is held."""
        text = self._held.pop(channel, "") + text
        if text and _HIGH_HALF.match(text[-1]):
            self._held[channel] = text[-1]
            text = text[:-1]
        return _HALVES.sub(_decode_halves, text)

    def take_rest(self) -> list[tuple[Hashable, str]]:
        """Return U+FFFD for each incomplete half, by channel."""
        alone = [*self._held]
        self._held.clear()
        return [(channel, "\ufffd") for channel in alone]


def _decode_halves(match: re.Match[str]) -> str:
    halves = b"".join((ord(char) - _PRIVATE + _FIRST).to_bytes(2, "little") for char in match[0])
    return halves.decode("utf-16-le", errors="replace")
