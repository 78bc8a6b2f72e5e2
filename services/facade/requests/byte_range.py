"""The Range header (RFC 9110, section 14).

Several ranges, other units and invalid ranges yield the whole file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteRange:
    offset: int
    """First byte; a negative value counts from the end."""

    length: int
    """Number of bytes; 0 means to the end."""

    def resolve_range(self, size_bytes: int) -> tuple[int, int]:
        """Return the first byte and the end (exclusive) in a file of that size, which must contain the first."""
        start = max(0, size_bytes + self.offset) if self.offset < 0 else self.offset
        return start, min(size_bytes, start + self.length) if self.length else size_bytes


def parse_range(header: str | None) -> ByteRange | None:
    match = _ONE_RANGE.fullmatch((header or "").strip())
    if match is None or match[0] == "bytes=-":
        return None
    first, last = match.groups()
    if not first:
        return ByteRange(-int(last), 0) if int(last) else None
    if not last:
        return ByteRange(int(first), 0)
    return ByteRange(int(first), int(last) - int(first) + 1) if int(first) <= int(last) else None
