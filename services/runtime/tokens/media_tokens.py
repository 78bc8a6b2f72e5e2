"""Tokens of images, sounds and files, which tokenizers cannot count.

Images count by OpenAI's rule for GPT-4o (https://platform.openai.com/docs/guides/images-vision, 2025).
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from typing import TYPE_CHECKING

from services.runtime.tokens.image_size import image_size

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2


SOUND_BYTES = {"audio/mpeg": 1_600}
"""Bytes per token, a tenth of a second: MP3 at 128 kbit/s."""

WAVE_BYTES = 3_200
"""The same for a WAV file: one channel of 16 bits at 16 kHz."""

PAGE_TOKENS = 2_000
"""Tokens of a PDF page, within 1,500 to 3,000 (https://platform.claude.com/docs/en/build-with-claude/pdf-support,
2026-11)."""

PAGE_BYTES = 100_000
"""Assumed bytes of a page, where compressed objects hide the number of pages."""

_PAGE = re.compile(rb"/Type\s*/Page\b")


def count_media(part: llm_pb2.ContentPart) -> int:
    """Return the tokens of a part that is not text; 0 for text."""
    match part.WhichOneof("part"):
        case "image":
            return image_tokens(part.image)
        case "audio":
            size_bytes = len(part.audio.data) or len(part.audio.url) * 3 // 4
            return 1 + size_bytes // SOUND_BYTES.get(part.audio.mime_type, WAVE_BYTES)
        case "file":
            data = part.file.data
            pages = len(_PAGE.findall(data)) or 1 + (len(data) or len(part.file.url) * 3 // 4) // PAGE_BYTES
            return pages * PAGE_TOKENS
        case _:
            return 0


BASE_TOKENS = 85
TILE_TOKENS = 170
TILE_PX = 512
FIT_PX = 2048
SHORT_SIDE_PX = 768

UNKNOWN_SIZE = (FIT_PX, SHORT_SIDE_PX)
"""The most expensive size, so that a request with an unreadable image fits."""

HEADER_BYTES_MAX = 256 * 1024
"""Bytes of a data URL that are decoded; previews may precede the size."""


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
