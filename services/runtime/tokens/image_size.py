"""Type and size of an image (PNG, JPEG, GIF, WebP), and type of a sound (WAV, MP3), from the first bytes."""

from __future__ import annotations

import struct

_BY_DIRECTION = struct.Struct(">HH")

_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})
"""JPEG segments between C0 and CF that are no frames."""


MIME_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
"""Types of images by their first bytes."""


def image_type(data: bytes) -> str:
    """Return an image's MIME type; empty for other data."""
    if image_size(data) is None:
        return ""
    return next(kind for start, kind in MIME_TYPES.items() if data.startswith(start))


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) in pixels; None for other data, or too little."""
    try:
        size = _size(data)
    except (struct.error, IndexError):
        return None
    return size if size and all(size) else None


def _size(data: bytes) -> tuple[int, int] | None:
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        width, height = struct.unpack_from(">II", data, 16)
        return width, height
    if data.startswith((b"GIF87a", b"GIF89a")):
        width, height = struct.unpack_from("<HH", data, 6)
        return width, height
    if data.startswith(b"\xff\xd8"):
        return _jpeg(data)
    if data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        return _webp(data)
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """Read segments (FF, kind, length) up to the frame's, with height and width."""
    at = 2
    while data[at] == 0xFF:
        kind = data[at + 1]
        if kind == 0xFF:  # padding
            at += 1
        elif 0xC0 <= kind <= 0xCF and kind not in _NO_FRAME:
            height, width = _BY_DIRECTION.unpack_from(data, at + 5)
            return width, height
        else:
            (length,) = struct.unpack_from(">H", data, at + 2)
            at += 2 + length
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    """Read one of the forms in https://developers.google.com/speed/webp/docs/riff_container."""
    match data[12:16]:
        case b"VP8X":
            return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
        case b"VP8L":
            (bits,) = struct.unpack_from("<I", data, 21)
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            width, height = struct.unpack_from("<HH", data, 26)
            return width & 0x3FFF, height & 0x3FFF
        case _:
            return None


SOUND_TYPES = ("audio/wav", "audio/mpeg")
"""Sounds that models take."""


def sound_type(head: bytes) -> str:
    """Return a sound's MIME type; empty for other data."""
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "audio/wav"
    is_tagged = head.startswith(b"ID3") and head[3:4] < b"\x10"
    # A frame begins with 11 bits that are set; layer III is 01.
    is_frame = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2
    return "audio/mpeg" if is_tagged or is_frame else ""
