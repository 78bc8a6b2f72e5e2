"""The error object that every protocol uses, and what decoding a provider's JSON can raise."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding bytes from outside; the last for thousands of nested brackets."""


class ErrorObject(msgspec.Struct):
    """An error, as the body of a refusal or inside a 200 stream."""

    message: str | None = None
    type: str | None = None
    code: str | int | None = None
