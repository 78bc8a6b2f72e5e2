"""Finds damage in the bytes of a log, line by line. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.memory.encryption.envelope import is_encrypted_line
from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log import recovery
from services.memory.log.checksums import WrongChecksum, has_checksum, remove_checksum
from services.memory.log.lines import decode_line


@dataclass(slots=True)
class LogReport:
    lines: int = 0
    """Readable lines."""
    unchecked: int = 0
    """Readable lines without a checksum, which older versions wrote."""
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
    for text in whole.split(b"\n"):
        if decode_line(text, chat_id, keys) is not None:
            report.lines += 1
            report.unchecked += not has_checksum(text)
    return report


def _find_problems(data: bytes, chat_id: str, keys: Keyring) -> Iterator[str]:
    start, expected = 0, 1
    for index, text in enumerate(data.split(b"\n"), 1):
        line = decode_line(text, chat_id, keys) if text else None
        where = f"line {index} (byte {start})"
        if line is not None:
            if line.n != expected:
                yield f"{where}: has number {line.n}, not {expected}"
            if line.chat_id != chat_id:
                yield f"{where}: belongs to chat {line.chat_id}"
            expected = line.n + 1
        elif text or start < len(data):
            yield f"{where}: " + _describe_problem(text)
            expected += 1
        start += len(text) + 1


def _describe_problem(text: bytes) -> str:
    if not has_checksum(text):
        return "is no line of a log"
    try:
        is_encrypted = is_encrypted_line(remove_checksum(text))
    except WrongChecksum:
        return "its checksum is wrong"
    return "is not what was encrypted for this place" if is_encrypted else "is no line of a log"
