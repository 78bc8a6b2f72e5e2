"""Logs of Chat Memory V3, which have a log's name in the folder of chats and are converted there.

Our own lines always have a number; those of V3 have none.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.memory.importing import v3
from services.memory.importing.log_builder import LogBuilder
from services.memory.importing.messages import Json, parse_json
from services.memory.log import recovery
from services.memory.log.blobs import Blob


@dataclass(frozen=True, slots=True)
class OlderLog:
    log: bytes
    """Its lines in our form."""

    blobs: list[Blob]
    lines: int
    """Number of lines that were read."""

    unreadable: tuple[int, ...]
    """Numbers of the lines that are no JSON; the last one is not among them if its writer was cut off in it."""


def convert_older_log(chat_id: str, data: bytes) -> OlderLog | None:
    """Return the chat in a log of V3; None if `data` is not one."""
    entries: list[Json] = []
    unreadable: list[int] = []
    *texts, rest = data.split(b"\n")
    for number, text in enumerate(texts, 1):
        if text.strip() and not _add_entry(entries, text):
            unreadable.append(number)
        if unreadable and not entries:
            return None
    if rest.strip():
        _add_entry(entries, rest)
    if not entries or any("_n" in entry or entry.get("chatId", chat_id) != chat_id for entry in entries):
        return None
    writing = LogBuilder(chat_id)
    v3.convert_lines(writing, entries)
    log = writing.build_log()
    reading = recovery.read_log(log, chat_id)
    if reading.is_damaged or not reading.lines or reading.whole_bytes != len(log):
        return None
    return OlderLog(log, writing.blobs, len(entries), tuple(unreadable))


def _add_entry(entries: list[Json], text: bytes) -> bool:
    try:
        entry = parse_json(text)
    except (ValueError, RecursionError):
        return False
    if not isinstance(entry, dict) or not isinstance(entry.get("_type"), str):
        return False
    entries.append(entry)
    return True
