"""Events of AG-UI as frames of Server-Sent Events.

Names and fields are those of @ag-ui/core 1.0.0, whose schemas the client checks.
"""

from __future__ import annotations

from typing import Any

import orjson

PROTOCOL_VERSION = "1.0"

OURS = "headrace"
"""Key of what is ours in metadata and forwardedProps, and prefix of our custom events."""


def encode_frame(kind: str, **fields: Any) -> bytes:
    """Return one event without an id; fields that are None are left out."""
    event = {"type": kind, **{name: value for name, value in fields.items() if value is not None}}
    return b"data: %b\n\n" % orjson.dumps(event)


def encode_raw_frame(kind: str, raw: bytes, **fields: Any) -> bytes:
    """Return one event whose `value` is JSON text."""
    head = orjson.dumps({"type": kind, **{name: value for name, value in fields.items() if value is not None}})
    return b'data: %b,"value":%b}\n\n' % (head[:-1], raw)


def encode_head(kind: str, **fields: Any) -> bytes:
    """Return an event up to its `delta`, which comes again and again."""
    return encode_frame(kind, **fields)[: -len(b"}\n\n")] + b',"delta":'


def add_id(frames: bytes, n: bytes, seq: int, open_ids: bytes) -> bytes:
    """Give the last of some frames its id."""
    return b"%b\nid: %b%d%b\n\n" % (frames[:-2], n, seq, open_ids)
