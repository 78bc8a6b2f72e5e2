"""Limits of images and audio in answers; their formats are tested with the files of tests/llm_gateway/streams."""

import base64
from typing import Any

import orjson
import pytest

from services.llm_gateway.protocols.common.answer_media import (
    BYTES_MAX,
    IMAGE_BYTES_MAX,
    PARTS_MAX,
    SOUND_BYTES_MAX,
    AnswerMedia,
)
from tests.support.llm_gateway.gateway import Asking

GIF = b"GIF89a\x02\x00\x03\x00"
TOO_MANY = f"an answer may have {PARTS_MAX} pictures and sounds"


def as_url(size_bytes: int) -> str:
    return "data:image/gif;base64," + base64.b64encode(GIF.ljust(size_bytes, b"\0")).decode()


def as_step(*urls: str) -> dict[str, Any]:
    images = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
    return {"raw": f"data: {orjson.dumps({'choices': [{'delta': {'images': images}}]}).decode()}\n\n"}


async def test_the_largest_image_arrives_in_full_and_a_larger_one_as_a_problem(asking: Asking) -> None:
    steps = [as_step(as_url(IMAGE_BYTES_MAX)), as_step(as_url(IMAGE_BYTES_MAX + 1)), {"content": "There."}]
    async with asking([{"steps": steps}]) as gateway:
        result = await gateway.chat()
    assert result.error is None
    first, second = (delta.media for delta in result.deltas if delta.HasField("media"))
    assert (len(first.data), first.mime_type, first.problem) == (IMAGE_BYTES_MAX, "image/gif", "")
    assert (second.data, second.problem) == (b"", "a picture is larger than 10 MiB")


async def test_an_image_in_an_answer_rules_out_a_retry(asking: Asking) -> None:
    async with asking([{"steps": [as_step(as_url(20)), {"cut": True}]}]) as gateway:
        result = await gateway.chat()
    assert result.kinds[:2] == ["started", "media"]
    assert result.kinds.count("started") == 1


def test_the_number_of_images_in_an_answer_is_limited() -> None:
    media = AnswerMedia()
    given = [media.read_picture(as_url(20)) for _ in range(PARTS_MAX + 2)]
    assert [media_part.problem for media_part in given] == [""] * PARTS_MAX + [TOO_MANY] * 2


def test_the_bytes_of_all_images_in_an_answer_are_limited() -> None:
    media = AnswerMedia()
    fitting = BYTES_MAX // IMAGE_BYTES_MAX
    given = [media.read_picture(as_url(IMAGE_BYTES_MAX)) for _ in range(fitting + 1)]
    assert [bool(media_part.problem) for media_part in given] == [False] * fitting + [True]
    assert media.read_picture(as_url(20)).problem == "", "a small one still has room"


@pytest.mark.parametrize(("beyond", "problem"), [(0, ""), (3, "the sound is larger than 25 MiB")])
def test_the_bytes_of_an_answers_audio_are_limited(beyond: int, problem: str) -> None:
    media = AnswerMedia()
    whole = SOUND_BYTES_MAX // 3 * 3
    piece = base64.b64encode(b"ID3\x04".ljust(whole // 5 * 3 // 3 * 3, b"\0")).decode()
    sent = 0
    while sent < whole + beyond:
        size = min(len(piece) // 4 * 3, whole + beyond - sent)
        media.add_sound(piece[: size // 3 * 4])
        sent += size
    sound = media.take_sound()
    assert sound is not None
    assert (len(sound.data), sound.problem) == (0 if problem else whole, problem)
    assert media.take_sound() is None
