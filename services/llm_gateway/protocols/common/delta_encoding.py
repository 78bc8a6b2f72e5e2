"""Encodes most LlmDeltas without creating the message.

A field is its tag, its length as a varint, and its bytes (https://protobuf.dev/programming-guides/encoding/).
"""

from __future__ import annotations

from headrace.v1.llm_pb2 import LlmDelta, ToolCallDelta

_LENGTH_DELIMITED = 2
ONE_BYTE = 0x80


def _make_tag(message: type[LlmDelta | ToolCallDelta], name: str, wire_type: int = _LENGTH_DELIMITED) -> bytes:
    return bytes((message.DESCRIPTOR.fields_by_name[name].number << 3 | wire_type,))


def _make_short_prefixes(tag: bytes) -> tuple[bytes, ...]:
    return tuple(tag + bytes((size,)) for size in range(ONE_BYTE))


def _encode_varint(value: int) -> bytes:
    out = bytearray()
    while value >= ONE_BYTE:
        out.append(value & 0x7F | ONE_BYTE)
        value >>= 7
    out.append(value)
    return bytes(out)


_REASONING = _make_short_prefixes(_make_tag(LlmDelta, "reasoning"))
CONTENT = _make_short_prefixes(_make_tag(LlmDelta, "content"))
_CALL = _make_short_prefixes(_make_tag(LlmDelta, "tool_call"))
_INDEX = _make_tag(ToolCallDelta, "index", wire_type=0)
_ID = _make_short_prefixes(_make_tag(ToolCallDelta, "id"))
_NAME = _make_short_prefixes(_make_tag(ToolCallDelta, "name"))
_ARGUMENTS = _make_short_prefixes(_make_tag(ToolCallDelta, "arguments"))


def encode_reasoning(text: str) -> bytes:
    return _encode_field(_REASONING, text.encode())


def encode_content(text: str) -> bytes:
    return _encode_field(CONTENT, text.encode())


def encode_call(index: int, arguments: str, call_id: str = "", name: str = "") -> bytes:
    fields = _INDEX + _encode_varint(index) if index else b""
    if call_id:
        fields += _encode_field(_ID, call_id.encode())
    if name:
        fields += _encode_field(_NAME, name.encode())
    if arguments:
        fields += _encode_field(_ARGUMENTS, arguments.encode())
    return _encode_field(_CALL, fields)


def _encode_field(short: tuple[bytes, ...], data: bytes) -> bytes:
    size = len(data)
    return short[size] + data if size < ONE_BYTE else short[0][:-1] + _encode_varint(size) + data
