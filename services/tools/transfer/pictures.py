"""Makes pictures small enough for a model."""

from __future__ import annotations

import struct
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from headrace.errors import InvalidRequest
from services.runtime.tokens.image_size import image_size
from services.tools.workspace.content_types import HEAD_BYTES

SIDE_PX_MAX = 2048

PIXELS_MAX = 64_000_000
"""Limit of a picture, which then takes 256 MB for a second; larger ones are refused by their header."""

FORMATS = ("PNG", "JPEG", "GIF", "WEBP")

JPEG_QUALITY = 88


def shrink_picture(path: Path) -> None:
    """Replaces too large a picture in `path`; blocks.

    Raises:
        InvalidRequest: It has too many pixels, or cannot be read.
    """
    from PIL import Image, ImageOps  # 3 MB, and 0.1 s

    with path.open("rb") as file:
        _check_pixels(image_size(file.read(HEAD_BYTES)))  # before Pillow, which only warns
    with _picture_errors(), Image.open(path, formats=FORMATS) as picture:
        _check_pixels(picture.size)
        if max(picture.size) > SIDE_PX_MAX:
            kind, smaller = picture.format, picture
            if picture.mode.startswith("I"):
                smaller = picture.point(lambda grey: grey * (1 / 256)).convert("L")  # Pillow would cut them at 255
            elif kind != "JPEG" and picture.mode not in ("RGB", "RGBA", "L"):
                smaller = picture.convert("RGBA")  # colours of a palette cannot be mixed
            # A JPEG is decoded at a fraction of its size at once.
            smaller.thumbnail((SIDE_PX_MAX, SIDE_PX_MAX), Image.Resampling.LANCZOS)
            ImageOps.exif_transpose(smaller).save(path, format=kind, quality=JPEG_QUALITY)


def _check_pixels(size: tuple[int, int] | None) -> None:
    if size is not None and size[0] * size[1] > PIXELS_MAX:
        raise InvalidRequest.of("file", f"the picture has more than {PIXELS_MAX // 1_000_000} megapixels")


@contextmanager
def _picture_errors() -> Generator[None]:
    try:
        yield
    except (OSError, SyntaxError, ValueError, EOFError, struct.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's, not the picture's
        raise InvalidRequest.of("file", "the picture is damaged and cannot be read") from error
