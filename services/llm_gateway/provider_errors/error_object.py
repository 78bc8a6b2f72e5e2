"""The error object of every protocol, and the errors of decoding JSON."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding foreign bytes; the last for deeply nested brackets."""


class ErrorObject(msgspec.Struct):
    """An error in a refusal's body or a 200 stream."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None
