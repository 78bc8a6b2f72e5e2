"""The charset of a text file: what its first bytes say, UTF-8 where it is valid, else what its bytes are most like."""

from __future__ import annotations

import codecs
import os
from collections.abc import Callable
from dataclasses import dataclass

import chardet

HEAD_BYTES = 8192
"""Where a null byte says that a file is no text."""

PIECE_BYTES = 1024 * 1024

SAMPLE_BYTES = 64 * 1024
"""What is looked at around the first byte that is no UTF-8."""

WESTERN = "windows-1252"

WESTERN_SHARE = 0.4
"""Share of the likeliest charset's probability from which it is taken for western: short texts are like many."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""What files begin with that name their charset; the longer ones first."""


@dataclass(frozen=True, slots=True)
class Charset:
    name: str = "utf-8"
    mark: bytes = b""
    """What the file begins with, which is no text."""

    @property
    def is_utf8(self) -> bool:
        return self.name == "utf-8"

    def decode(self, content: bytes) -> str:
        """Return the text, in which bytes that are no characters are kept as lone surrogates."""
        return content[len(self.mark) :].decode(self.name, "surrogateescape")

    def encode(self, text: str) -> bytes:
        """Raises UnicodeEncodeError where the charset does not have a character."""
        return self.mark + text.encode(self.name, "surrogateescape")


UTF8 = Charset()


def detect_charset(fd: int) -> Charset | None:
    """Return the charset of an open file, whose position stays; None where it is no text. Blocks."""
    return _detect(lambda size, at: os.pread(fd, size, at))


def detect_content_charset(content: bytes) -> Charset | None:
    return _detect(lambda size, at: content[at : at + size])


def _detect(read: Callable[[int, int], bytes]) -> Charset | None:
    """`read` gives so many bytes from a place on, fewer at the end."""
    head = read(HEAD_BYTES, 0)
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Charset(name, mark)
    if b"\0" in head:
        name = _guess(head)
        return Charset(name) if name.startswith(("utf-16", "utf-32")) else None
    at = _find_invalid(read)
    return UTF8 if at is None else Charset(_guess(read(SAMPLE_BYTES, max(0, at - SAMPLE_BYTES // 2))))


def _find_invalid(read: Callable[[int, int], bytes]) -> int | None:
    decoder, at = codecs.getincrementaldecoder("utf-8")(), 0
    while True:
        piece = read(PIECE_BYTES, at)
        try:
            decoder.decode(piece, final=not piece)
        except UnicodeDecodeError as error:
            return at + error.start
        if not piece:
            return None
        at += len(piece)


def _guess(sample: bytes) -> str:
    text = sample.decode(errors="surrogateescape")
    broken = sum("\udc80" <= char <= "\udcff" for char in text)
    if not sample.isascii() and broken < sum(char > "\x7f" for char in text) / 2:
        return "utf-8"  # a few bytes of it are broken
    found = chardet.detect_all(sample, encoding_era=chardet.EncodingEra.MODERN_WEB, max_bytes=SAMPLE_BYTES)
    likely = {str(each["encoding"]).lower(): each["confidence"] or 0.0 for each in found if each["encoding"]}
    best = max(likely, key=lambda name: likely[name], default=WESTERN)
    return WESTERN if likely.get(WESTERN, 0.0) >= WESTERN_SHARE * likely.get(best, 0.0) else best
