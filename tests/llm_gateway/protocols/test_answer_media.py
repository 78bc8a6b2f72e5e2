"""Bounds of the pictures and sounds in answers; their forms are files of tests/llm_gateway/streams."""

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


async def test_the_largest_picture_comes_whole_and_a_larger_one_as_its_reason(asking: Asking) -> None:
    steps = [as_step(as_url(IMAGE_BYTES_MAX)), as_step(as_url(IMAGE_BYTES_MAX + 1)), {"content": "There."}]
    async with asking([{"steps": steps}]) as gateway:
        heard = await gateway.hear()
    assert heard.error is None
    first, second = (delta.media for delta in heard.deltas if delta.HasField("media"))
    assert (len(first.data), first.mime_type, first.problem) == (IMAGE_BYTES_MAX, "image/gif", "")
    assert (second.data, second.problem) == (b"", "a picture is larger than 10 MiB")


async def test_a_picture_is_an_answer_that_no_other_attempt_follows(asking: Asking) -> None:
    async with asking([{"steps": [as_step(as_url(20)), {"cut": True}]}]) as gateway:
        heard = await gateway.hear()
    assert heard.kinds[:2] == ["started", "media"]
    assert heard.kinds.count("started") == 1


def test_an_answer_has_so_many_pictures() -> None:
    media = AnswerMedia()
    given = [media.read_picture(as_url(20)) for _ in range(PARTS_MAX + 2)]
    assert [one.problem for one in given] == [""] * PARTS_MAX + [TOO_MANY] * 2


def test_an_answer_has_so_many_bytes() -> None:
    media = AnswerMedia()
    fitting = BYTES_MAX // IMAGE_BYTES_MAX
    given = [media.read_picture(as_url(IMAGE_BYTES_MAX)) for _ in range(fitting + 1)]
    assert [bool(one.problem) for one in given] == [False] * fitting + [True]
    assert media.read_picture(as_url(20)).problem == "", "a small one still has room"


@pytest.mark.parametrize(("beyond", "problem"), [(0, ""), (3, "the sound is larger than 25 MiB")])
def test_a_sound_has_so_many_bytes(beyond: int, problem: str) -> None:
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
