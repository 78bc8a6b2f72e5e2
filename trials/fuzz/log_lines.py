"""The log's line reader: any bytes are a line or none, and a line that was read reads the same when written again."""

from __future__ import annotations

from headrace.errors import KeyUnavailable
from services.memory.log.lines import Unknown, decode_line, encode_line


def check(data: bytes) -> None:
    """Decode; and again after encoding what came out."""
    try:
        line = decode_line(data)
    except KeyUnavailable:  # it has the form of an encrypted one
        return
    if line is None or isinstance(line, Unknown):
        return
    assert decode_line(encode_line(line).removesuffix(b"\n")) == line
