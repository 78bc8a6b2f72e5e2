"""Detects a file's kind, MIME type and charset from its content.

The name decides only between kinds of text, and a text with an unknown suffix is text/plain, which no browser executes.
The charset is given by the first bytes, is UTF-8 if the content is valid, or else is the most similar one. A text in
another charset than UTF-8 has no MIME type of texts, because their readers would take it for UTF-8.
"""

from __future__ import annotations

import codecs
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

import chardet
import filetype

from services.runtime.tokens.image_size import image_type, sound_type

Kind: TypeAlias = Literal["image", "audio", "text", "pdf", "office", "other"]

HEAD_BYTES = 64 * 1024

IMAGE_BYTES_MAX = 10 * 1024 * 1024
"""Maximum size of a picture shown to a model."""

OLE2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""Signature of Office files from before 2007; the name decides their kind."""

OLE2_TYPES = {"doc": "application/msword", "xls": "application/vnd.ms-excel", "ppt": "application/vnd.ms-powerpoint"}

_OPEN_XML = "application/vnd.openxmlformats-officedocument."
OPEN_XML_FOLDERS = {
    "word": _OPEN_XML + "wordprocessingml.document",
    "xl": _OPEN_XML + "spreadsheetml.sheet",
    "ppt": _OPEN_XML + "presentationml.presentation",
}
OPEN_DOCUMENT = b"application/vnd.oasis.opendocument."

ZIP_NAMES_MAX = 2000

UNKNOWN_TYPE = "application/octet-stream"

TEXT_TYPES = {
    "csv": "text/csv",
    "htm": "text/html",
    "html": "text/html",
    "json": "application/json",
    "md": "text/markdown",
    "svg": "image/svg+xml",
    "tsv": "text/tab-separated-values",
    "xml": "application/xml",
}

CONTROLS = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1a\x1b\b"))
"""Bytes that no text contains, most of all the null byte."""

PDF_BEGIN = b"%PDF-"

CHARSET_HEAD_BYTES = 8192
"""Bytes in which a null byte shows that a file is not text."""

PIECE_BYTES = 1024 * 1024

SAMPLE_BYTES = 64 * 1024
"""Size of the sample around the first byte that is not UTF-8."""

WESTERN = "windows-1252"

WESTERN_SHARE = 0.4
"""Share of the likeliest charset's probability at which a western one is preferred, because short texts resemble
many."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""Byte order marks and their charsets; the longer ones first."""


@dataclass(frozen=True, slots=True)
class ContentType:
    kind: Kind
    mime_type: str


def detect_type(fd: int, name: str) -> ContentType:
    """Detect the type of an open file without moving its position; blocks."""
    head = os.pread(fd, HEAD_BYTES, 0)
    if head.startswith(PDF_BEGIN):
        return ContentType("pdf", "application/pdf")
    if image := image_type(head):
        return ContentType("image", image)
    if sound := sound_type(head):
        return ContentType("audio", sound)
    suffix = name.rpartition(".")[2].lower()
    if office := _detect_office(fd, head, suffix):
        return ContentType("office", office)
    if text := _detect_text(head, suffix):
        return text
    guessed = filetype.guess_mime(head) or UNKNOWN_TYPE
    return ContentType("audio" if guessed.startswith("audio/") else "other", guessed)


def _detect_office(fd: int, head: bytes, suffix: str) -> str | None:
    if head.startswith(OLE2):
        return OLE2_TYPES.get(suffix)
    if not head.startswith(b"PK\x03\x04"):
        return None
    if head[38:].startswith(OPEN_DOCUMENT):  # the file `mimetype`, which comes first, uncompressed
        return head[38:138].split(b"PK")[0].decode("ascii", "replace")
    try:
        with open(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
            folders = {name.partition("/")[0] for name in archive.namelist()[:ZIP_NAMES_MAX]}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return None
    if "[Content_Types].xml" not in folders:
        return None
    return next((mime_type for folder, mime_type in OPEN_XML_FOLDERS.items() if folder in folders), None)


def _detect_text(head: bytes, suffix: str) -> ContentType | None:
    name = next((name for mark, name in _MARKS if head.startswith(mark)), None)
    text = head if name is None else head.decode(name, "ignore").encode()
    if len(text.translate(None, CONTROLS)) != len(text):
        return None
    try:
        # Not final: the head may end within a character.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=False)
    except UnicodeDecodeError:
        return ContentType("text", UNKNOWN_TYPE)
    return ContentType("text", TEXT_TYPES.get(suffix, "text/plain"))


@dataclass(frozen=True, slots=True)
class Charset:
    name: str = "utf-8"
    mark: bytes = b""
    """Byte order mark at the file's beginning."""

    @property
    def is_utf8(self) -> bool:
        return self.name == "utf-8"

    def decode(self, content: bytes) -> str:
        """Return the text; invalid bytes are kept as lone surrogates."""
        return content[len(self.mark) :].decode(self.name, "surrogateescape")

    def encode(self, text: str) -> bytes:
        """Return the bytes. Raises UnicodeEncodeError if the charset lacks a character."""
        return self.mark + text.encode(self.name, "surrogateescape")


UTF8 = Charset()


def detect_charset(fd: int) -> Charset | None:
    """Return the charset of an open file without moving its position; None if it is not text. Blocks."""
    return _detect(lambda size, at: os.pread(fd, size, at))


def detect_content_charset(content: bytes) -> Charset | None:
    return _detect(lambda size, at: content[at : at + size])


def _detect(read: Callable[[int, int], bytes]) -> Charset | None:
    """Detect the charset; `read` returns a number of bytes from an offset, fewer at the end."""
    head = read(CHARSET_HEAD_BYTES, 0)
    for mark, name in _MARKS:
        if head.startswith(mark):
            return Charset(name, mark)
    if head.startswith(PDF_BEGIN):  # often there is no null byte at its beginning
        return None
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
