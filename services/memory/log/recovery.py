"""Reads a log file after a crash or damage, and reports the damage line by line.

An append that a crash cut was never acknowledged, and its tail is set aside: its end is missing, or some of its blocks
never reached the disk and are zeros, before others of the same write that did. Other damage (a changed line, a gap or
repetition in the numbers) is left for people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log import recovery
from services.memory.log.chat import Chat
from services.memory.log.lines import Line, has_checksum
from services.memory.log.sealing import LineReader, find_link

NEVER_WRITTEN = b"\0"
"""File systems return it for a block that was never written; JSON does not contain it."""


@dataclass(frozen=True, slots=True)
class LogReading:
    lines: list[Line]

    whole_bytes: int
    """Offset of the tail to set aside; the file's length if there is none."""

    is_damaged: bool

    reader: LineReader
    """The reader of the lines; its `check` raises if they may not be shown."""


def read_log(data: bytes, chat_id: str, keys: Keyring = NO_KEYS) -> LogReading:
    """Read a log. Raises KeyUnavailable, Overloaded if one of its keys is not available.

    For a damaged encrypted log, only the lines that provably belong to its first line are returned, because others may
    come from another owner's chat.
    """
    lines: list[Line] = []
    ends: list[int] = []
    end, is_damaged = 0, False
    missing_n = 0
    """Number of the first line that never reached the disk; 0 if all did."""
    reader = LineReader(chat_id, keys)
    proven: list[Line] = []
    *texts, rest = data.split(b"\n")
    for text in texts:
        end += len(text) + 1
        line = reader.read(text)
        expected = lines[-1].n + 1 if lines else 1
        if line is None:
            missing_n = missing_n or expected
            is_damaged |= NEVER_WRITTEN not in text
            continue
        is_misplaced = not 0 < line.batch <= missing_n if missing_n else line.n != expected
        is_damaged |= is_misplaced or line.chat_id != chat_id
        lines.append(line)
        ends.append(end)
        if reader.is_proven:
            proven.append(line)
    # A line is complete if only its line break differs.
    is_ended_wrongly = (
        has_checksum(rest[:-1]) and not rest.endswith(NEVER_WRITTEN) and reader.read(rest[:-1]) is not None
    )
    if is_damaged or is_ended_wrongly:
        return LogReading(proven, len(data), True, reader)
    lines = lines[: missing_n - 1] if missing_n else lines
    whole = 0
    while whole < len(lines) and whole + lines[whole].lines <= len(lines):
        whole += lines[whole].lines
    return LogReading(lines[:whole], ends[whole - 1] if whole else 0, False, reader)


def read_chat(chat_id: str, log: bytes, keys: Keyring = NO_KEYS) -> Chat:
    """Return the chat. Raises LogDamaged if no line may be shown, KeyUnavailable, Overloaded."""
    reading = read_log(log, chat_id, keys)
    reading.reader.check()
    return make_chat(chat_id, log, reading, keys)


def make_chat(chat_id: str, log: bytes, reading: LogReading, keys: Keyring = NO_KEYS) -> Chat:
    chat = Chat.from_lines(chat_id, reading.lines, reading.whole_bytes, is_damaged=reading.is_damaged)
    chat.link = find_link(chat_id, log[: reading.whole_bytes], keys)
    return chat


NO_LINE = "is no line of a log"


@dataclass(slots=True)
class LogReport:
    lines: int = 0
    """Readable lines."""
    unchecked: int = 0
    """Readable lines without a checksum, written by older versions."""
    unsealed: int = 0
    """Readable lines that are not sealed although chats are encrypted; the next pass seals them."""
    problems: list[str] = field(default_factory=list[str])
    """Damage that requires a person."""
    torn_bytes: int = 0
    """Bytes of an append that a crash cut; the next start sets them aside."""


def verify_log(data: bytes, chat_id: str, keys: Keyring = NO_KEYS) -> LogReport:
    """Check a log. Raises KeyUnavailable, Overloaded if one of its keys is not available."""
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
