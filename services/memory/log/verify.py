"""Finds damage in the bytes of a log, line by line. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log import recovery
from services.memory.log.checksums import has_checksum
from services.memory.log.encryption.lines import LineReader

NO_LINE = "is no line of a log"


@dataclass(slots=True)
class LogReport:
    lines: int = 0
    """Readable lines."""
    unchecked: int = 0
    """Readable lines without a checksum, which older versions wrote."""
    unsealed: int = 0
    """Readable lines that are not sealed, though chats are encrypted: they wait for a pass."""
    problems: list[str] = field(default_factory=list[str])
    """Damage that a person must look at."""
    torn_bytes: int = 0
    """Bytes of an append that a crash cut; the next start sets them aside."""


def verify_log(data: bytes, chat_id: str, keys: Keyring = NO_KEYS) -> LogReport:
    """Raises KeyUnavailable, Overloaded where a key of the log cannot be had."""
    report = LogReport()
    reading = recovery.read_log(data, chat_id, keys)
    if reading.is_damaged:
        report.problems += _find_problems(data, chat_id, keys)
    else:
        report.torn_bytes = len(data) - reading.whole_bytes
    whole = data if reading.is_damaged else data[: reading.whole_bytes]
    reader = LineReader(chat_id, keys)
    for text in whole.split(b"\n"):
        if reader.read(text) is not None:
            report.lines += 1
            report.unchecked += not has_checksum(text)
    report.unsealed = reader.unsealed if keys.encrypts else 0
    return report


def _find_problems(data: bytes, chat_id: str, keys: Keyring) -> Iterator[str]:
    start, expected, reader = 0, 1, LineReader(chat_id, keys)
    for index, text in enumerate(data.split(b"\n"), 1):
        line = reader.read(text) if text else None
        where = f"line {index} (byte {start})"
        if line is not None:
            if line.n != expected:
                yield f"{where}: has number {line.n}, not {expected}"
            if line.chat_id != chat_id:
                yield f"{where}: belongs to chat {line.chat_id}"
            expected = line.n + 1
        elif text or start < len(data):
            yield f"{where}: {reader.problem if has_checksum(text) else NO_LINE}"
            expected += 1
        start += len(text) + 1
