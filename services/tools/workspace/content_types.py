"""Tells files' kind and MIME type by content.

The name decides only between kinds of text, and a text with an unknown suffix is text/plain, which no browser runs.
"""

from __future__ import annotations

import codecs
import os
import zipfile
from dataclasses import dataclass
from typing import Literal, TypeAlias

import filetype

from services.runtime.tokens.image_size import image_type
from services.runtime.tokens.sound_type import sound_type

Kind: TypeAlias = Literal["image", "audio", "text", "pdf", "office", "other"]

HEAD_BYTES = 64 * 1024

IMAGE_BYTES_MAX = 10 * 1024 * 1024
"""Largest picture that a model is shown."""

OLE2 = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""Start of Office files from before 2007, of which the name decides the kind."""

OLE2_TYPES = {"doc": "application/msword", "xls": "application/vnd.ms-excel", "ppt": "application/vnd.ms-powerpoint"}

_OPEN_XML = "application/vnd.openxmlformats-officedocument."
OPEN_XML_FOLDERS = {
    "word": _OPEN_XML + "wordprocessingml.document",
    "xl": _OPEN_XML + "spreadsheetml.sheet",
    "ppt": _OPEN_XML + "presentationml.presentation",
}
OPEN_DOCUMENT = b"application/vnd.oasis.opendocument."

ZIP_NAMES_MAX = 2000

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

CONTROLS = bytes(set(range(32)) - set(b"\t\n\f\r\x1b\b"))
"""Bytes that no text has, the null byte first of all."""


@dataclass(frozen=True, slots=True)
class ContentType:
    kind: Kind
    mime_type: str


def detect_type(fd: int, name: str) -> ContentType:
    """Detects the type of an open file, whose position stays; blocks."""
    head = os.pread(fd, HEAD_BYTES, 0)
    if head.startswith(b"%PDF-"):
        return ContentType("pdf", "application/pdf")
    if image := image_type(head):
        return ContentType("image", image)
    if sound := sound_type(head):
        return ContentType("audio", sound)
    suffix = name.rpartition(".")[2].lower()
    if office := _detect_office(fd, head, suffix):
        return ContentType("office", office)
    if _is_text(head):
        return ContentType("text", TEXT_TYPES.get(suffix, "text/plain"))
    guessed = filetype.guess_mime(head) or "application/octet-stream"
    return ContentType("audio" if guessed.startswith("audio/") else "other", guessed)


def _detect_office(fd: int, head: bytes, suffix: str) -> str | None:
    if head.startswith(OLE2):
        return OLE2_TYPES.get(suffix)
    if not head.startswith(b"PK\x03\x04"):
        return None
    if head[38:].startswith(OPEN_DOCUMENT):  # the file `mimetype`, which stands first, uncompressed
        return head[38:138].split(b"PK")[0].decode("ascii", "replace")
    try:
        with open(os.dup(fd), "rb") as file, zipfile.ZipFile(file) as archive:
            folders = {name.partition("/")[0] for name in archive.namelist()[:ZIP_NAMES_MAX]}
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError):
        return None
    if "[Content_Types].xml" not in folders:
        return None
    return next((mime_type for folder, mime_type in OPEN_XML_FOLDERS.items() if folder in folders), None)


def _is_text(head: bytes) -> bool:
    if len(head.translate(None, CONTROLS)) != len(head):
        return False
    try:
        # Not final: the head may end within a character.
        codecs.getincrementaldecoder("utf-8")().decode(head, final=False)
    except UnicodeDecodeError:
        return False
    return True
