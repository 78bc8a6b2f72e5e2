"""Encodes AG-UI events as frames of Server-Sent Events.

Names and fields are those of @ag-ui/core 1.0.0; the client validates events against its schemas.
"""

from __future__ import annotations

from typing import Any

import orjson

PROTOCOL_VERSION = "1.0"

OURS = "headrace"
"""Key of our fields in metadata and forwardedProps, and prefix of our custom events."""


def encode_frame(kind: str, **fields: Any) -> bytes:
    """Return one event without an id; fields that are None are omitted."""
    event = {"type": kind, **{name: value for name, value in fields.items() if value is not None}}
    return b"data: %b\n\n" % orjson.dumps(event)


def encode_raw_frame(kind: str, raw: bytes, **fields: Any) -> bytes:
    """Return one event with JSON text as its `value`."""
    head = orjson.dumps({"type": kind, **{name: value for name, value in fields.items() if value is not None}})
    return b'data: %b,"value":%b}\n\n' % (head[:-1], raw)


def encode_head(kind: str, **fields: Any) -> bytes:
    """Return an event up to and including the key `delta`, to be reused for every piece."""
    return encode_frame(kind, **fields)[: -len(b"}\n\n")] + b',"delta":'


def add_id(frames: bytes, n: bytes, seq: int, open_ids: bytes) -> bytes:
    """Add an id to the last of the frames."""
    return b"%b\nid: %b%d%b\n\n" % (frames[:-2], n, seq, open_ids)
