"""Tokens of images, sounds and files, which no tokeniser counts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from services.runtime.tokens.image_tokens import image_tokens

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2

SOUND_BYTES = {"audio/mpeg": 1_600}
"""Bytes of a token, a tenth of a second: MP3 at 128 kbit/s."""

WAVE_BYTES = 3_200
"""The same of a WAV file: one channel of 16 bits at 16 kHz."""

PAGE_TOKENS = 2_000
"""Tokens of a PDF's page, of 1,500 to 3,000
(https://platform.claude.com/docs/en/build-with-claude/pdf-support, 2026-11)."""

PAGE_BYTES = 100_000
"""Bytes of a page, where compressed objects hide how many there are."""

_PAGE = re.compile(rb"/Type\s*/Page\b")


def count_media(part: llm_pb2.ContentPart) -> int:
    """Return the tokens of a part that is no text; 0 for a text."""
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
