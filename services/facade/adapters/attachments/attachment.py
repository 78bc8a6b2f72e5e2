"""One attachment of a message, and the decoding of its bytes.

The text keeps the attachment's name in brackets at its place, so that it can refer to several attachments.
"""

from __future__ import annotations

import binascii
import hashlib
import mimetypes
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import InvalidRequest
from services.facade.adapters.attachments.file_ids import FileId
from services.runtime.tokens.image_size import image_size

ATTACHMENTS_MAX = 20
"""Maximum number of attachments in a request; the limit of the body's size also limits their bytes."""

NOT_FETCHED = "must be a data: URL with base64: this server fetches no address that a caller names"
NO_PICTURE = "must be a PNG, JPEG, GIF or WebP image"

_DATA_URL = re.compile(r"data:([\w.+/-]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)

_URL_SAFE = bytes.maketrans(b"-_", b"+/")


@dataclass(frozen=True, slots=True)
class Attachment:
    field: str
    """Path of the attachment in the request, for errors."""

    name: str
    data: bytes
    detail: str = ""
    """Level of detail at which the model sees an image; empty for the provider's default."""

    stored: FileId | None = None
    """Stored file that replaces `data`."""

    is_picture: bool = False


def make_attachment(field: str, name: str, mime_type: str, data: bytes) -> Attachment:
    """Return an attachment; without a name, it gets one derived from its content."""
    is_picture = mime_type.startswith("image/")
    if is_picture and image_size(data) is None:
        raise InvalidRequest.of(field, NO_PICTURE)
    kind = mime_type.partition("/")[0] if mime_type.startswith(("image/", "audio/", "video/")) else "file"
    return Attachment(field, name or make_name(kind, mime_type, data), data, is_picture=is_picture)


def check_number(attachments: Sequence[Attachment]) -> None:
    if len(attachments) > ATTACHMENTS_MAX:
        rule = f"must not be one of more than {ATTACHMENTS_MAX} images, sounds and files"
        raise InvalidRequest.of(attachments[ATTACHMENTS_MAX].field, rule)


def decode_url(url: str, field: str) -> tuple[str, bytes]:
    """Return media type and content of a data URL."""
    head = _DATA_URL.match(url)
    if head is None:
        raise InvalidRequest.of(field, NOT_FETCHED)
    return head[1], decode_base64(url[head.end() :], field)


def decode_base64(text: str, field: str) -> bytes:
    """Decode base64 of either alphabet, with or without padding. It may have line breaks, or be a data URL, as some
    programs send it in place of its bytes.
    """
    if head := _DATA_URL.match(text):
        text = text[head.end() :]
    try:
        encoded = text.strip().encode("ascii").translate(_URL_SAFE, b"\r\n").rstrip(b"=")
        data = binascii.a2b_base64(encoded + b"=" * (-len(encoded) % 4), strict_mode=True)
    except (binascii.Error, ValueError):
        raise InvalidRequest.of(field, "must be valid base64") from None
    if not data:
        raise InvalidRequest.of(field, "must not be empty")
    return data


def make_name(kind: str, mime_type: str, data: bytes) -> str:
    # Derived from the content, so that a file sent again in the same chat is stored once.
    return f"{kind}-{hashlib.sha256(data).hexdigest()[:8]}{mimetypes.guess_extension(mime_type) or ''}"
