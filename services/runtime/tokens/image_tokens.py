"""Tokens of an image by OpenAI's rule for GPT-4o.

Source: https://platform.openai.com/docs/guides/images-vision (2025).
"""

from __future__ import annotations

import base64
import binascii
import math
from typing import TYPE_CHECKING

from services.runtime.tokens.image_size import image_size

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2

BASE_TOKENS = 85
TILE_TOKENS = 170
TILE_PX = 512
FIT_PX = 2048
SHORT_SIDE_PX = 768

UNKNOWN_SIZE = (FIT_PX, SHORT_SIDE_PX)
"""The dearest size, so that a request with an unreadable image fits."""

HEADER_BYTES_MAX = 256 * 1024
"""Bytes of a data URL that are decoded; previews may come before the size."""


def image_tokens(image: llm_pb2.ImagePart) -> int:
    if image.detail == "low":
        return BASE_TOKENS
    width, height = image_size(image.data or _start_of(image.url)) or UNKNOWN_SIZE
    return BASE_TOKENS + TILE_TOKENS * tiles(width, height)


def tiles(width: int, height: int) -> int:
    """Return how many tiles cover an image, which is never enlarged."""
    width, height = _shrunk(width, height, max(width, height), FIT_PX)
    width, height = _shrunk(width, height, min(width, height), SHORT_SIDE_PX)
    return math.ceil(width / TILE_PX) * math.ceil(height / TILE_PX)


def _shrunk(width: int, height: int, side: int, limit: int) -> tuple[int, int]:
    if side <= limit:
        return width, height
    return max(1, width * limit // side), max(1, height * limit // side)


def _start_of(url: str) -> bytes:
    """Return the first bytes of an image in a data URL; none for other addresses."""
    kind, _, text = url[: HEADER_BYTES_MAX * 4 // 3].partition(",")
    if not (kind.startswith("data:") and kind.endswith(";base64")):
        return b""
    try:
        return base64.b64decode(text[: len(text) // 4 * 4])
    except binascii.Error:
        return b""
