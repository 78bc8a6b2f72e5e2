"""What sounds and files cost, as far as it can be known without the model."""

from __future__ import annotations

import pytest

from headrace.v1.llm_pb2 import AudioPart, ContentPart, FilePart, Message
from services.runtime.tokens.count import count_message
from services.runtime.tokens.media_tokens import PAGE_TOKENS, count_media

PAGES = b"%PDF-1.7 << /Type /Pages /Count 2 >> << /Type /Page >> <</Type/Page/Parent 1 0 R>>"


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (ContentPart(audio=AudioPart(data=bytes(160_000), mime_type="audio/mpeg")), 101),
        (ContentPart(audio=AudioPart(data=bytes(320_000), mime_type="audio/wav")), 101),
        (ContentPart(file=FilePart(data=PAGES, mime_type="application/pdf")), 2 * PAGE_TOKENS),
        (ContentPart(file=FilePart(data=bytes(250_000), mime_type="application/pdf")), 3 * PAGE_TOKENS),
        (ContentPart(text="hello"), 0),
    ],
    ids=["mp3", "wav", "pages", "hidden pages", "text"],
)
def test_a_sound_costs_by_its_length_and_a_document_by_its_pages(part: ContentPart, expected: int) -> None:
    assert count_media(part) == expected


def test_a_messages_tokens_include_them() -> None:
    sound = ContentPart(audio=AudioPart(data=bytes(160_000), mime_type="audio/mpeg"))
    empty, full = Message(role="user"), Message(role="user", content=[sound])
    assert count_message(full, "o200k_base") - count_message(empty, "o200k_base") == 101
