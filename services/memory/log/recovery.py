"""Reading a log file after a crash or damage.

An append cut by a crash was never acknowledged, and its tail is set aside: it lacks its end, or blocks of it that never
reached the disk are zeros, before others of the same write that did. Other damage (a line that is not what was written,
a gap or repetition in the numbers) is left for people.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log.chat import Chat
from services.memory.log.checksums import has_checksum
from services.memory.log.lines import Line, decode_line

NEVER_WRITTEN = b"\0"
"""File systems return it for a block that was never written; JSON has none."""


@dataclass(frozen=True, slots=True)
class LogReading:
    lines: list[Line]

    whole_bytes: int
    """The offset of the tail to set aside; the file's length if there is none."""

    is_damaged: bool


def read_log(data: bytes, chat_id: str, keys: Keyring = NO_KEYS) -> LogReading:
    """Read a log. Raises KeyUnavailable, Overloaded where a key of it cannot be had."""
    lines: list[Line] = []
    ends: list[int] = []
    end, is_damaged = 0, False
    missing_n = 0
    """Number of the first line that never reached the disk; 0 while all did."""
    *texts, rest = data.split(b"\n")
    for text in texts:
        end += len(text) + 1
        line = decode_line(text, chat_id, keys)
        expected = lines[-1].n + 1 if lines else 1
        if line is None:
            missing_n = missing_n or expected
            is_damaged |= NEVER_WRITTEN not in text
            continue
        is_misplaced = not 0 < line.batch <= missing_n if missing_n else line.n != expected
        is_damaged |= is_misplaced or line.chat_id != chat_id
        lines.append(line)
        ends.append(end)
    # A line whose end alone is another byte was whole.
    is_ended_wrongly = (
        has_checksum(rest[:-1])
        and not rest.endswith(NEVER_WRITTEN)
        and decode_line(rest[:-1], chat_id, keys) is not None
    )
    if is_damaged or is_ended_wrongly:
        return LogReading(lines, len(data), True)
    lines = lines[: missing_n - 1] if missing_n else lines
    whole = 0
    while whole < len(lines) and whole + lines[whole].lines <= len(lines):
        whole += lines[whole].lines
    return LogReading(lines[:whole], ends[whole - 1] if whole else 0, False)


def read_chat(chat_id: str, log: bytes, keys: Keyring = NO_KEYS) -> Chat:
    reading = read_log(log, chat_id, keys)
    return Chat.from_lines(chat_id, reading.lines, reading.whole_bytes, is_damaged=reading.is_damaged)
