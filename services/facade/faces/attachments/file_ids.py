"""File ids, which encode the location of the upload, so that the facade keeps no state.

`file-<chat>-<name>`: the chat's id without hyphens, the upload's name in URL-safe base64.
"""

from __future__ import annotations

import base64
import binascii
import re
import uuid
from typing import NamedTuple

_ID = re.compile(r"file-([0-9a-f]{32})-([A-Za-z0-9_-]+)")


class FileId(NamedTuple):
    chat_id: str
    name: str

    @property
    def path(self) -> str:
        return f"uploads/{self.name}"

    def __str__(self) -> str:
        name = base64.urlsafe_b64encode(self.name.encode()).decode().rstrip("=")
        return f"file-{self.chat_id.replace('-', '')}-{name}"


def parse_file_id(text: str) -> FileId | None:
    """Return the file; None for an id that this server did not issue."""
    match = _ID.fullmatch(text)
    if match is None:
        return None
    try:
        name = base64.urlsafe_b64decode(match[2] + "=" * (-len(match[2]) % 4)).decode()
    except (binascii.Error, ValueError):
        return None
    return FileId(str(uuid.UUID(hex=match[1])), name)
