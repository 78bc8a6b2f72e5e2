"""The checksum that ends each line of a log: CRC-32 of the line without it, as its last member.

A disk that returns other bytes than were written is found when the line is read. Lines of older versions have none.
"""

from __future__ import annotations

from zlib import crc32

_MEMBER = b',"_crc":"%08x"}'
_START = _MEMBER[:9]
_SIZE = len(_MEMBER % 0)


class WrongChecksum(ValueError):
    """A line is not what was written."""


def add_checksum(line: bytes) -> bytes:
    """Return a JSON object that has members, without a line break, with its checksum."""
    return line[:-1] + _MEMBER % crc32(line)


def has_checksum(line: bytes) -> bool:
    return line[-_SIZE:-10] == _START and line.endswith(b'"}')


def remove_checksum(line: bytes) -> bytes:
    """Return the line as it was before `add_checksum`; one without a checksum as it is.

    Raises:
        WrongChecksum: The line has another checksum than its bytes.
    """
    if not has_checksum(line):
        return line
    rest = line[:-_SIZE] + b"}"
    if line[-_SIZE:] != _MEMBER % crc32(rest):
        raise WrongChecksum
    return rest
