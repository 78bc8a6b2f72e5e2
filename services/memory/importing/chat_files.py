"""Detects the format of a file to import, and converts it."""

from __future__ import annotations

import base64
import json
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from services.memory.importing import blade, v3
from services.memory.importing.log_builder import LogBuilder, make_uuid
from services.memory.importing.messages import Json, parse_json, to_text
from services.memory.log import recovery
from services.memory.log.media import Blob
from services.runtime.rpc.field_rules import is_uuid

INDEX = "_chats.jsonl"
"""A list of chats stored next to V3 logs; it adds nothing to them."""

_SUFFIXES = frozenset({".json", ".jsonl"})


class UnreadableFile(Exception):
    """A file that is not a log of a known format."""


@dataclass(frozen=True, slots=True)
class ImportedChat:
    chat_id: str
    log: bytes
    blobs: list[Blob]


def list_files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    found = (file for file in path.iterdir() if file.suffix in _SUFFIXES and file.name != INDEX)
    return sorted(file for file in found if file.is_file())


def read_chat_file(path: Path) -> ImportedChat:
    """Read the chat in the file at `path`.

    Raises:
        UnreadableFile: It is not a chat.
        OSError: It cannot be read.
    """
    texts = path.read_bytes().splitlines(keepends=True)
    kept = [text for text in texts if not text.startswith(_BLOB_START)]
    blobs = [_parse_blob(text) for text in texts if text.startswith(_BLOB_START)]
    log = b"".join(kept)
    if own := _find_own_chat(log):
        return ImportedChat(own, log, blobs)
    entries = _parse_entries(log, path)
    names = (to_text(entry.get("chatId") or entry.get("sessionId")) for entry in entries)
    name = next(filter(None, names), path.stem)
    if all(entry.get("isSidechain") is True for entry in entries):  # a sub-agent's file has its parent's session
        name = f"{name} {path.stem}"
    chat_id = make_uuid(name) if name else str(uuid.uuid4())
    writing = LogBuilder(chat_id)
    (v3.convert_lines if any("_type" in entry for entry in entries) else blade.convert_entries)(writing, entries)
    if not (data := writing.build_log()):
        raise UnreadableFile(f"{path} holds no conversation")
    return ImportedChat(chat_id, data, blobs + writing.blobs)


def format_export(log: bytes, blobs: list[Blob]) -> bytes:
    """Format a chat as one file for `read_chat_file`: its log, and a line for each blob."""
    pieces = [log]
    for blob in blobs:
        members = {"_type": "blob", "mimeType": blob.mime_type, "data": base64.b64encode(blob.data).decode()}
        pieces.append(json.dumps(members, separators=(",", ":")).encode() + b"\n")
    return b"".join(pieces)


_BLOB_START = b'{"_type":"blob",'


def _parse_blob(text: bytes) -> Blob:
    try:
        members = json.loads(text)
        return Blob.create(to_text(members["mimeType"]), base64.b64decode(members["data"], validate=True))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableFile(f"a blob cannot be read: {error}") from error


def _find_own_chat(log: bytes) -> str | None:
    try:
        chat_id = to_text(json.loads(log[: log.find(b"\n") + 1])["chatId"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    reading = recovery.read_log(log, chat_id)
    is_whole = bool(reading.lines) and not reading.is_damaged and reading.whole_bytes == len(log)
    return chat_id if is_uuid(chat_id) and is_whole else None


def _parse_entries(log: bytes, path: Path) -> list[Json]:
    text = log.decode(errors="replace").strip()
    try:
        found: list[Any] = (
            parse_json(text.encode())
            if text.startswith("[")
            else [parse_json(line.encode()) for line in _split_lines(text)]
        )
    except (ValueError, RecursionError) as error:
        raise UnreadableFile(f"{path} is neither JSON lines nor a JSON list: {error}") from error
    entries = [entry for entry in found if isinstance(entry, dict)]
    if not entries:
        raise UnreadableFile(f"{path} holds no entries")
    return entries


def _split_lines(text: str) -> list[str]:
    lines = [line for line in text.split("\n") if line.strip()]
    try:
        json.loads(lines[-1]) if lines else None
    except (ValueError, RecursionError):
        lines.pop()
    return lines
