"""Encodes messages of AWS's event streams (https://docs.aws.amazon.com/transcribe/latest/dg/event-stream.html)."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import orjson

STREAM_TYPE = "application/vnd.amazon.eventstream"

_STRING = 7


def encode_event(name: str, **payload: Any) -> bytes:
    return encode_message({":event-type": name, ":message-type": "event"}, payload)


def encode_message(headers: dict[str, str], payload: dict[str, Any]) -> bytes:
    fields = headers | {":content-type": "application/json"}
    head = b"".join(_encode_header(name, value) for name, value in fields.items())
    data = orjson.dumps(payload)
    prelude = struct.pack("!II", 16 + len(head) + len(data), len(head))
    message = prelude + struct.pack("!I", zlib.crc32(prelude)) + head + data
    return message + struct.pack("!I", zlib.crc32(message))


def _encode_header(name: str, value: str) -> bytes:
    key, text = name.encode(), value.encode()
    return bytes((len(key),)) + key + struct.pack("!BH", _STRING, len(text)) + text
