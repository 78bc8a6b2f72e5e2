"""Pictures and other large parts of a chat, each in a file named by its content. Everything here blocks.

`blobs/<chatId>/<SHA-256>` holds the MIME type, a line break, and the content. A blob is there before any line that
refers to it, and goes with its chat; a chat's folder is as old as the last wish to put something in.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import threading
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from services.runtime.disk import sync_folder
from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEME = "blob:"
"""A log's reference to a blob is this and its id."""

_ID = re.compile(r"[0-9a-f]{64}")
_MIME = re.compile(r"[A-Za-z0-9!#$&^_.+-]+/[A-Za-z0-9!#$&^_.+-]+(;[ -~]*)?")
_FALLBACK = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class Blob:
    """A content and its type."""

    mime_type: str
    data: bytes

    @property
    def id(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def reference(self) -> str:
        return SCHEME + self.id

    @classmethod
    def of(cls, mime_type: str, data: bytes) -> Blob:
        """The blob of a caller.

        Raises:
            InvalidRequest: The type is none.
        """
        if mime_type and not _MIME.fullmatch(mime_type):
            raise InvalidRequest.of("mimeType", "must be a MIME type such as image/png")
        return cls(mime_type or _FALLBACK, data)


def is_blob_id(text: str) -> bool:
    """Whether a blob may have this id."""
    return _ID.fullmatch(text) is not None


def blob_id(reference: str) -> str | None:
    """The blob that a URL in a log stands for; None for any other URL."""
    found = reference.removeprefix(SCHEME)
    return found if reference.startswith(SCHEME) and is_blob_id(found) else None


class Blobs:
    """The blobs of all chats of a folder. May be used from several threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._wanted = threading.Lock()
        """Held while a chat's folder is made or found wanted, and while one that is not wanted is deleted."""

    def put(self, chat_id: str, blob: Blob) -> None:
        """Keep a blob; on disk when this returns. One that is there already stays as it is."""
        path = self._path(chat_id, blob.id)
        with self._wanted:
            _make(path.parent)
            os.utime(path.parent)
        if path.exists():
            return
        unfinished = path.with_name(f".{uuid.uuid4()}")
        try:
            with open(unfinished, "xb") as file:
                file.write(blob.mime_type.encode() + b"\n" + blob.data)
                file.flush()
                os.fsync(file.fileno())
            os.rename(unfinished, path)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        """The blob with this id, if the chat has it."""
        if not is_blob_id(blob_id):
            return None
        try:
            kept = self._path(chat_id, blob_id).read_bytes()
        except FileNotFoundError:
            return None
        mime_type, _, data = kept.partition(b"\n")
        return Blob(mime_type.decode(), data)

    def all(self, chat_id: str) -> Iterator[Blob]:
        """Every blob of a chat, one at a time in memory."""
        folder = self._chat_folder(chat_id)
        for name in sorted(os.listdir(folder)) if folder.exists() else ():
            if blob := self.find(chat_id, name):
                yield blob

    def copy(self, source: str, target: str) -> None:
        """Give the chat `target` all blobs of `source`."""
        for blob in self.all(source):
            self.put(target, blob)

    def delete(self, chat_id: str) -> None:
        """Remove all blobs of a chat."""
        if self._chat_folder(chat_id).exists():
            shutil.rmtree(self._chat_folder(chat_id))

    def unwanted_since(self, time_s: float) -> list[str]:
        """Chats in whose folder nobody has wanted to put anything since `time_s` (Unix)."""
        if not self._folder.exists():
            return []
        with os.scandir(self._folder) as entries:
            return [entry.name for entry in entries if is_uuid(entry.name) and entry.stat().st_mtime < time_s]

    def delete_unwanted(self, chat_id: str, time_s: float) -> bool:
        """Remove all blobs of a chat unless somebody has wanted to put one since `time_s`; whether they are gone."""
        with self._wanted:
            if self._chat_folder(chat_id).stat().st_mtime >= time_s:
                return False
            self.delete(chat_id)
        return True

    def _path(self, chat_id: str, blob_id: str) -> Path:
        return self._chat_folder(chat_id) / blob_id

    def _chat_folder(self, chat_id: str) -> Path:
        assert is_uuid(chat_id), "nothing but a UUID becomes a path"
        return self._folder / chat_id


def _make(folder: Path) -> None:
    """Make a chat's folder, its name on disk."""
    if not folder.exists():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)
        sync_folder(folder.parent.parent)
