"""The error object of every protocol."""

from __future__ import annotations

import msgspec

UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Exceptions of decoding foreign bytes."""


class ErrorObject(msgspec.Struct):
    message: str | None = None
    type: str | None = None
    code: str | int | None = None
    param: msgspec.Raw = msgspec.Raw()
    """The field of the request that is wrong; mostly a text."""

    status: str | int | None = None
    """Google's word for the kind."""

    metadata: msgspec.Raw = msgspec.Raw()
    """OpenRouter puts the error of the provider behind it here."""

    details: msgspec.Raw = msgspec.Raw()
    """Google puts the time to wait here, and the fields that are wrong."""
