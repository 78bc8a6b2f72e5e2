"""Finds damage in the bytes of a log, line by line. Nothing is changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.memory.log import recovery
from services.memory.log.checksums import has_checksum
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


def verify_log(data: bytes, chat_id: str) -> LogReport:
    report = LogReport()
    reading = recovery.read_log(data, chat_id)
    if reading.is_damaged:
        report.problems += _find_problems(data, chat_id)
    else:
        report.torn_bytes = len(data) - reading.whole_bytes
    whole = data if reading.is_damaged else data[: reading.whole_bytes]
    for text in whole.split(b"\n"):
        if decode_line(text) is not None:
            report.lines += 1
            report.unchecked += not has_checksum(text)
    return report


def _find_problems(data: bytes, chat_id: str) -> Iterator[str]:
    start, expected = 0, 1
    for index, text in enumerate(data.split(b"\n"), 1):
        line = decode_line(text) if text else None
        where = f"line {index} (byte {start})"
        if line is not None:
            if line.n != expected:
                yield f"{where}: has number {line.n}, not {expected}"
            if line.chat_id != chat_id:
                yield f"{where}: belongs to chat {line.chat_id}"
            expected = line.n + 1
        elif text or start < len(data):
            yield f"{where}: " + ("its checksum is wrong" if has_checksum(text) else "is no line of a log")
            expected += 1
        start += len(text) + 1
