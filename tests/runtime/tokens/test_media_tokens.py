"""Token costs of images, sounds and files, as far as they are known without the model."""

import base64
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.v1.llm_pb2 import AudioPart, ContentPart, FilePart, ImagePart, Message
from services.runtime.tokens.count import count_message
from services.runtime.tokens.image_size import image_size
from services.runtime.tokens.media_tokens import PAGE_TOKENS, count_media, image_tokens, tiles


def png(width: int, height: int) -> bytes:
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", width, height) + b"\x08\x06\0\0\0"


def jpeg(width: int, height: int, before: bytes = b"") -> bytes:
    exif = b"\xff\xe1" + struct.pack(">H", 2 + len(before)) + before
    tables = b"\xff\xc4\x00\x04ab"
    return b"\xff\xd8" + exif + tables + b"\xff\xff\xc2" + struct.pack(">HBHH", 17, 8, height, width)


def webp(kind: bytes, body: bytes) -> bytes:
    return b"RIFF\0\0\0\0WEBP" + kind + struct.pack("<I", len(body)) + body


IMAGES = {
    "png": png(640, 480),
    "jpeg": jpeg(640, 480),
    "jpeg with a preview": jpeg(640, 480, b"\xff\xc0" * 30_000),
    "gif": b"GIF89a" + struct.pack("<HH", 640, 480),
    "webp": webp(b"VP8 ", b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", 640, 480)),
    "webp lossless": webp(b"VP8L", b"\x2f" + struct.pack("<I", 639 | 479 << 14)),
    "webp extended": webp(b"VP8X", b"\0\0\0\0" + (639).to_bytes(3, "little") + (479).to_bytes(3, "little")),
}


@pytest.mark.parametrize("image", IMAGES.values(), ids=IMAGES)
def test_sizes_are_read_from_the_first_bytes(image: bytes) -> None:
    assert image_size(image + b"pixels") == (640, 480)
    assert image_size(image[: len(image) // 2]) is None


@given(st.sampled_from([b"", *(image[:20] for image in IMAGES.values())]), st.binary(max_size=200))
def test_any_bytes_can_be_measured_without_an_error(start: bytes, data: bytes) -> None:
    size = image_size(start + data)
    assert size is None or min(size) > 0


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        ((1, 1), 1),
        ((512, 512), 1),
        ((513, 512), 2),
        ((1024, 1024), 4),  # shrunk to 768 x 768
        ((2048, 4096), 6),  # to 1024 x 2048, then 768 x 1536
        ((4096, 2048), 6),
        ((100_000, 10), 4),  # to 2048 x 1
        ((2048, 768), 8),
    ],
)
def test_tiles_cover_the_shrunk_image(size: tuple[int, int], expected: int) -> None:
    assert tiles(*size) == expected


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (ImagePart(data=png(1024, 1024), mime_type="image/png"), 765),
        (ImagePart(data=png(1024, 1024), detail="auto"), 765),
        (ImagePart(data=png(1024, 1024), detail="low"), 85),
        (ImagePart(url="data:image/png;base64," + base64.b64encode(png(1024, 1024)).decode()), 765),
        (ImagePart(url="data:image/jpeg;base64," + base64.b64encode(jpeg(9, 9, b"x" * 60_000)).decode()), 255),
        (ImagePart(url="https://example.org/a.png"), 85 + 8 * 170),
        (ImagePart(url="data:image/png;base64,é"), 85 + 8 * 170),
        (ImagePart(data=b"not an image"), 85 + 8 * 170),
    ],
)
def test_an_image_costs_85_and_170_for_each_tile(image: ImagePart, expected: int) -> None:
    assert image_tokens(image) == expected


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


def test_the_tokens_of_a_message_include_its_media() -> None:
    sound = ContentPart(audio=AudioPart(data=bytes(160_000), mime_type="audio/mpeg"))
    empty, full = Message(role="user"), Message(role="user", content=[sound])
    assert count_message(full, "o200k_base") - count_message(empty, "o200k_base") == 101
