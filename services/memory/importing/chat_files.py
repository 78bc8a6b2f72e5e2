"""A file to import: whose form it has, and the log that it becomes."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.memory.importing import blade, v3
from services.memory.importing.log_builder import Writing, uuid_of
from services.memory.importing.messages import Json, text_in
from services.memory.log import recovery
from services.memory.log.blobs import Blob
from services.runtime.rpc.field_rules import is_uuid

INDEX = "_chats.jsonl"
"""A list of chats beside V3 logs; all that it says is in the logs."""

_SUFFIXES = frozenset({".json", ".jsonl"})


class Unreadable(Exception):
    """A file that is no log of a form that is known."""


@dataclass(frozen=True, slots=True)
class Imported:
    """A chat that was read."""

    chat_id: str
    log: bytes
    blobs: list[Blob]


def files(path: Path) -> list[Path]:
    """The files that may be logs: `path` itself, or those of a folder."""
    if not path.is_dir():
        return [path]
    found = (file for file in path.iterdir() if file.suffix in _SUFFIXES and file.name != INDEX)
    return sorted(file for file in found if file.is_file())


def read(path: Path) -> Imported:
    """The chat in the file at `path`.

    Raises:
        Unreadable: It is none.
        OSError: It cannot be read.
    """
    texts = path.read_bytes().splitlines(keepends=True)
    kept = [text for text in texts if not text.startswith(_BLOB_START)]
    blobs = [_blob(text) for text in texts if text.startswith(_BLOB_START)]
    log = b"".join(kept)
    if own := _own(log):
        return Imported(own, log, blobs)
    entries = _entries(log, path)
    chat_id = _chat_id(entries, path)
    writing = Writing(chat_id)
    (v3 if any("_type" in entry for entry in entries) else blade).take_in(writing, entries)
    if not (data := writing.log()):
        raise Unreadable(f"{path} holds no conversation")
    return Imported(chat_id, data, blobs + writing.blobs)


def exported(log: bytes, blobs: list[Blob]) -> bytes:
    """A chat as one file, which `read` gives back as it was: its log, and its blobs a line each."""
    return log + b"".join(map(_blob_line, blobs))


_BLOB_START = b'{"_type":"blob",'


def _blob_line(blob: Blob) -> bytes:
    members = {"_type": "blob", "mimeType": blob.mime_type, "data": base64.b64encode(blob.data).decode()}
    return json.dumps(members, separators=(",", ":")).encode() + b"\n"


def _blob(text: bytes) -> Blob:
    try:
        members = json.loads(text)
        return Blob.of(text_in(members["mimeType"]), base64.b64decode(members["data"], validate=True))
    except (ValueError, KeyError, TypeError) as error:
        raise Unreadable(f"a blob cannot be read: {error}") from error


def _own(log: bytes) -> str | None:
    """The chat of a log that is whole in the form that is written now."""
    try:
        chat_id = text_in(json.loads(log[: log.find(b"\n") + 1])["chatId"])
    except (ValueError, KeyError, TypeError):
        return None
    reading = recovery.read(log, chat_id)
    is_whole = bool(reading.lines) and not reading.is_damaged and reading.whole_bytes == len(log)
    return chat_id if is_uuid(chat_id) and is_whole else None


def _entries(log: bytes, path: Path) -> list[Json]:
    """The objects of a file: one a line, or one list of them."""
    text = log.decode(errors="replace").strip()
    try:
        found: list[Any] = json.loads(text) if text.startswith("[") else [json.loads(line) for line in _lines(text)]
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is neither JSON lines nor a JSON list: {error}") from error
    entries = [entry for entry in found if isinstance(entry, dict)]
    if not entries:
        raise Unreadable(f"{path} holds no entries")
    return entries


def _lines(text: str) -> list[str]:
    """The lines of a log; the last one may have been cut by a crash."""
    lines = [line for line in text.split("\n") if line.strip()]
    try:
        json.loads(lines[-1]) if lines else None
    except ValueError:
        lines.pop()
    return lines


def _chat_id(entries: list[Json], path: Path) -> str:
    """The chat that the entries name, or their file does; else a new one."""
    names = (text_in(entry.get("chatId") or entry.get("sessionId")) for entry in entries)
    name = next(filter(None, names), path.stem)
    return uuid_of(name) if name else str(uuid.uuid4())
