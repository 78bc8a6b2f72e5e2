"""Makes pictures small enough for models."""

from __future__ import annotations

import io
import struct
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

from services.runtime.tokens.image_size import image_size

if TYPE_CHECKING:
    from PIL import Image

SIDE_PX_MAX = 2000
"""Longest side. Anthropic takes no larger ones where a request has more than 20 (2026-11), and most models shrink them
themselves."""

BYTES_MAX = 3_750_000
"""Size of one for any provider: Bedrock's limit, and about Anthropic's, which is 5 MiB of base64 (2026-11)."""

PIXELS_MAX = 64_000_000
"""Limit of a picture, which then takes 256 MB for a second; larger ones are refused by their header."""

HEAD_BYTES = 64 * 1024
"""The beginning, which says how large a picture is."""

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")

JPEG_QUALITY = 88

SIDES_PX = (SIDE_PX_MAX, 1600, 1200, 800)
"""Sides that are tried until the size fits."""


class BadPicture(ValueError):
    """A picture cannot be made smaller; the text says why."""


def is_large(head: bytes) -> bool:
    """Return whether a picture that begins so has too long a side."""
    size = image_size(head)
    return size is not None and max(size) > SIDE_PX_MAX


def shrink_picture(file: BinaryIO) -> bytes | None:
    """Return a picture of the same format with sides that fit, turned as it says; None where they do. Blocks.

    Raises:
        BadPicture: It has too many pixels, or cannot be read.
    """
    from PIL import ImageOps

    with _open_picture(file) as picture:
        if max(picture.size) <= SIDE_PX_MAX:
            return None
        return _save(ImageOps.exif_transpose(_scale(picture, SIDE_PX_MAX)), picture.format or "PNG")


def fit_picture(data: bytes) -> tuple[bytes, str]:
    """Return a picture as any provider takes it, and its MIME type. Blocks; raises what `shrink_picture` does."""
    from PIL import ImageOps

    with _open_picture(io.BytesIO(data)) as picture:
        kind = picture.format or "PNG"
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
            yield picture
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        if isinstance(error, BadPicture) or (isinstance(error, OSError) and error.errno is not None):
            raise  # ours, or the disk's
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
        smaller = picture.convert("RGBA")  # colours of a palette cannot be mixed
    # A JPEG is decoded at a fraction of its size at once.
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
