"""The Range header: one range of bytes, or nothing that we serve (RFC 9110, section 14).

Several ranges, other units and ranges that make no sense are left unheeded, as the RFC allows: the answer is then the
whole file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_ONE_RANGE = re.compile(r"bytes=(\d{0,18})-(\d{0,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class ByteRange:
    """As ReadFile takes it."""

    offset: int
    """Negative: so many bytes before the end."""

    length: int
    """0: to the end."""

    def resolve_range(self, size_bytes: int) -> tuple[int, int]:
        """The first byte and the one behind the last of a file of that size, which it begins in."""
        start = max(0, size_bytes + self.offset) if self.offset < 0 else self.offset
        return start, min(size_bytes, start + self.length) if self.length else size_bytes


def parse_range(header: str | None) -> ByteRange | None:
    """The range that `header` asks for."""
    found = _ONE_RANGE.fullmatch((header or "").strip())
    if found is None or found[0] == "bytes=-":
        return None
    first, last = found.groups()
    if not first:
        return ByteRange(-int(last), 0) if int(last) else None
    if not last:
        return ByteRange(int(first), 0)
    return ByteRange(int(first), int(last) - int(first) + 1) if int(first) <= int(last) else None
