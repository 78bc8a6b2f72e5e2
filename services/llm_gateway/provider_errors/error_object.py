"""The error object of every protocol."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding foreign bytes."""


class ErrorObject(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None

    metadata: msgspec.Raw = msgspec.Raw()
    """OpenRouter puts the error of the provider behind it here."""

    details: msgspec.Raw = msgspec.Raw()
    """Google puts the time to wait here."""
