"""Types and sizes of images (PNG, JPEG, GIF, WebP), types of sounds (WAV, MP3), and images resized for models.

Types and sizes are read from the first bytes, without Pillow.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from PIL import Image


_BY_DIRECTION = struct.Struct(">HH")

_NO_FRAME = frozenset({0xC4, 0xC8, 0xCC})
"""JPEG segments between C0 and CF that are not frames."""

MIME_TYPES = {b"\x89PNG": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif", b"RIFF": "image/webp"}
"""Types of images by their first bytes."""


def image_type(data: bytes) -> str:
    """Return an image's MIME type; empty for other data."""
    if image_size(data) is None:
        return ""
    return next(kind for start, kind in MIME_TYPES.items() if data.startswith(start))


def image_size(data: bytes) -> tuple[int, int] | None:
    """Return (width, height) in pixels; None for other data, or too little of it."""
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
"""Sounds that models accept."""


def sound_type(head: bytes) -> str:
    """Return a sound's MIME type; empty for other data."""
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE":
        return "audio/wav"
    is_tagged = head.startswith(b"ID3") and head[3:4] < b"\x10"
    # A frame begins with 11 bits that are set; layer III is 01.
    is_frame = len(head) > 1 and head[0] == 0xFF and head[1] & 0xE6 == 0xE2
    return "audio/mpeg" if is_tagged or is_frame else ""


SIDE_PX_MAX = 2000
"""Maximum side. Anthropic accepts no larger ones if a request has more than 20 images (2026-11), and most models shrink
them anyway."""

BYTES_MAX = 3_750_000
"""Maximum size for any provider: Bedrock's limit, and about Anthropic's, which is 5 MiB of base64 (2026-11)."""

PIXELS_MAX = 64_000_000
"""Maximum pixels of a picture, which then takes 256 MB for a second; larger ones are refused by their header."""

HEAD_BYTES = 64 * 1024
"""Bytes from the beginning that suffice to read a picture's size."""

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")

JPEG_QUALITY = 88

SIDES_PX = (SIDE_PX_MAX, 1600, 1200, 800)
"""Sides that are tried until the size fits."""


class BadPicture(ValueError):
    """A picture cannot be made smaller; the text has the reason."""


def is_large(head: bytes) -> bool:
    """Return whether a picture with this beginning has a side that is too long."""
    size = image_size(head)
    return size is not None and max(size) > SIDE_PX_MAX


def shrink_picture(file: BinaryIO) -> bytes | None:
    """Return a picture of the same format with sides within the limit, turned as its metadata requires; None if nothing
    must change. Blocks.

    Raises:
        BadPicture: It has too many pixels, or cannot be read.
    """
    from PIL import ImageOps

    with _open_picture(file) as picture:
        if max(picture.size) <= SIDE_PX_MAX:
            return None
        return _save(ImageOps.exif_transpose(_scale(picture, SIDE_PX_MAX)), picture.format or "PNG")


def fit_picture(data: bytes, refused: Collection[str] = ()) -> tuple[bytes, str]:
    """Return a picture in a form that any provider accepts, and its MIME type, which is none of `refused`. Blocks;
    raises like `shrink_picture`."""
    from PIL import ImageOps

    with _open_picture(io.BytesIO(data)) as picture:
        kind = picture.format or "PNG"
        kind = "PNG" if f"image/{kind.lower()}" in refused else kind
        smaller = ImageOps.exif_transpose(_scale(picture, SIDE_PX_MAX))
        fitted = _save(smaller, kind)
        for side in SIDES_PX:
            if len(fitted) <= BYTES_MAX:
                break
            smaller.thumbnail((side, side))
            kind, fitted = "JPEG", _save(_flatten(smaller), "JPEG")
    return fitted, f"image/{kind.lower()}"


@contextmanager
def _open_picture(file: BinaryIO) -> Generator[Image.Image]:
    from PIL import Image  # 3 MB, and 0.1 s

    _check_pixels(image_size(file.read(HEAD_BYTES)))  # before Pillow, which only warns
    file.seek(0)
    try:
        with Image.open(file, formats=FORMATS) as picture:
            _check_pixels(picture.size)
            if picture.format == "MPO":  # a phone's JPEG, with more pictures after the first
                picture.format = "JPEG"
            yield picture
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        if isinstance(error, BadPicture) or (isinstance(error, OSError) and error.errno is not None):
            raise  # our fault, or the disk's
        raise BadPicture("the picture is damaged and cannot be read") from error


def _check_pixels(size: tuple[int, int] | None) -> None:
    if size is not None and size[0] * size[1] > PIXELS_MAX:
        raise BadPicture(f"the picture has more than {PIXELS_MAX // 1_000_000} megapixels")


def _scale(picture: Image.Image, side: int) -> Image.Image:
    from PIL import Image

    smaller = picture
    if picture.mode.startswith("I"):
        smaller = picture.point(lambda grey: grey * (1 / 256)).convert("L")  # Pillow would cut them at 255
    elif picture.format != "JPEG" and picture.mode not in ("RGB", "RGBA", "L"):
        smaller = picture.convert("RGBA")  # a palette's colours cannot be mixed
    # A JPEG is decoded directly at a fraction of its size.
    smaller.thumbnail((side, side), Image.Resampling.LANCZOS)
    return smaller


def _flatten(picture: Image.Image) -> Image.Image:
    """Return the picture without transparency, on white."""
    from PIL import Image

    if picture.mode != "RGBA":
        return picture.convert("RGB")
    ground = Image.new("RGB", picture.size, "white")
    ground.paste(picture, mask=picture)
    return ground


def _save(picture: Image.Image, kind: str) -> bytes:
    saved = io.BytesIO()
    picture.save(saved, format=kind, quality=JPEG_QUALITY)
    return saved.getvalue()
