"""A large part of a chat, such as a picture, kept beside its log and named by its content."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

import structlog

from headrace.errors import InvalidRequest

SCHEME = "blob:"

_ID = re.compile(r"[0-9a-f]{64}")
_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(;[ -~]*)?")
_FALLBACK = "application/octet-stream"

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Blob:
    mime_type: str
    data: bytes

    @property
    def id(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def reference(self) -> str:
        return SCHEME + self.id

    def encode(self) -> bytes:
        return self.mime_type.encode() + b"\n" + self.data

    @classmethod
    def decode(cls, stored: bytes) -> Blob:
        """Return what `encode` was called of; anything else is some blob, whose id tells."""
        mime_type, _, data = stored.partition(b"\n")
        return cls(mime_type.decode("ascii", "replace"), data)

    @classmethod
    def create(cls, mime_type: str, data: bytes) -> Blob:
        """Make a blob of a caller's data.

        Raises:
            InvalidRequest: The MIME type is not valid.
        """
        if mime_type and not _MIME.fullmatch(mime_type):
            raise InvalidRequest.of("mimeType", "must be a MIME type such as image/png")
        return cls(mime_type or _FALLBACK, data)

    def check_id(self, chat_id: str, blob_id: str) -> Blob | None:
        """Return the blob if it is the one that was kept as `blob_id`; what the store damaged is logged."""
        if self.id == blob_id:
            return self
        log.error("blob damaged", chat_id=chat_id, blob_id=blob_id)
        return None


def is_blob_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def parse_reference(reference: str) -> str | None:
    """Return the blob id in a log's URL; None for any other URL."""
    found = reference.removeprefix(SCHEME)
    return found if reference.startswith(SCHEME) and is_blob_id(found) else None
