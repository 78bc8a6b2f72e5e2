"""Reading a log file after a crash or damage.

An append cut by a crash was never acknowledged, and its tail is set aside: it lacks its end, or blocks of it that never
reached the disk are zeros. Other damage (a line that is not what was written, a gap or repetition in the numbers) is
left for people.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.memory.log.chat import Chat
from services.memory.log.checksums import has_checksum
from services.memory.log.lines import Line, decode_line

NEVER_WRITTEN = b"\0"
"""What file systems return for a block that was never written; JSON has none."""


@dataclass(frozen=True, slots=True)
class LogReading:
    lines: list[Line]

    whole_bytes: int
    """The offset of the tail to set aside; the file's length if there is none."""

    is_damaged: bool


def read_log(data: bytes, chat_id: str) -> LogReading:
    lines: list[Line] = []
    ends: list[int] = []
    end, tail, is_damaged = 0, len(data), False
    *texts, rest = data.split(b"\n")
    for text in texts:
        start, end = end, end + len(text) + 1
        line = decode_line(text)
        if line is None:
            tail = min(tail, start)
            is_damaged |= NEVER_WRITTEN not in text
            continue
        expected = lines[-1].n + 1 if lines else 1
        is_damaged |= tail < start or line.n != expected or line.chat_id != chat_id
        lines.append(line)
        ends.append(end)
    # A line whose end alone is another byte was whole.
    if is_damaged or (has_checksum(rest[:-1]) and decode_line(rest[:-1]) is not None):
        return LogReading(lines, len(data), True)
    whole = 0
    while whole < len(lines) and whole + lines[whole].lines <= len(lines):
        whole += lines[whole].lines
    return LogReading(lines[:whole], ends[whole - 1] if whole else 0, False)


def read_chat(chat_id: str, log: bytes) -> Chat:
    reading = read_log(log, chat_id)
    return Chat.from_lines(chat_id, reading.lines, reading.whole_bytes, is_damaged=reading.is_damaged)
