"""Images adapted to what providers accept, whatever their source."""

import base64
import io
import random
from typing import Any

import pytest
from PIL import Image

from headrace.v1 import llm_pb2
from services.runtime.tokens.image_size import BYTES_MAX, SIDE_PX_MAX
from tests.support.llm_gateway.conversation import USER, answers, asks, call, read_body
from tests.support.llm_gateway.gateway import Asking


def encode_image(kind: str, width: int, height: int, *, is_noisy: bool = False) -> bytes:
    picture = Image.new("RGBA" if kind == "PNG" else "RGB", (width, height), "red")
    if is_noisy:
        picture = Image.frombytes("RGB", (width, height), random.Random(1).randbytes(width * height * 3))
    file = io.BytesIO()
    # Phones write their photos as the first of several pictures.
    more = {"save_all": True, "append_images": [picture.resize((9, 9))]} if kind == "MPO" else {}
    picture.save(file, format=kind, **more)
    return file.getvalue()


def make_part(data: bytes, kind: str, *, as_url: bool = False) -> llm_pb2.ContentPart:
    if as_url:
        url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        return llm_pb2.ContentPart(image=llm_pb2.ImagePart(url=url, detail="high"))
    return llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=data, mime_type=kind, detail="high"))


async def read_parts(asking: Asking, *parts: llm_pb2.ContentPart, in_result: bool = False) -> list[dict[str, Any]]:
    """Return the content a provider receives for a message, or a tool result, with these parts."""
    shown_message = answers("a") if in_result else llm_pb2.Message(role="user")
    shown_message.content.extend(parts)
    messages = (USER, asks(call("a")), shown_message) if in_result else (shown_message,)
    async with asking() as gateway:
        body = await read_body(gateway, *messages)
    contents = [message["content"] or [] for message in body["messages"]]
    return [part for content in contents for part in ([{"text": content}] if isinstance(content, str) else content)]


def decode_image(part: dict[str, Any]) -> tuple[str, bytes]:
    start, _, encoded = part["image_url"]["url"].partition(";base64,")
    return start.removeprefix("data:"), base64.b64decode(encoded)


@pytest.mark.parametrize("as_url", [False, True])
@pytest.mark.parametrize("in_result", [False, True])
@pytest.mark.parametrize(
    ("kind", "size", "expected_size"),
    [
        ("PNG", (1280, 12_000), (213, 2000)),
        ("JPEG", (2560, 1440), (2000, 1125)),
        ("MPO", (2560, 1440), (2000, 1125)),
        ("WEBP", (2001, 10), (2000, 10)),
    ],
)
async def test_a_too_large_image_is_scaled_down(
    asking: Asking, kind: str, size: tuple[int, int], expected_size: tuple[int, int], in_result: bool, as_url: bool
) -> None:
    stated = "image/jpeg" if kind == "MPO" else f"image/{kind.lower()}"
    part = make_part(encode_image(kind, *size), stated, as_url=as_url)
    [image] = [found for found in await read_parts(asking, part, in_result=in_result) if "image_url" in found]
    mime_type, data = decode_image(image)
    assert (mime_type, Image.open(io.BytesIO(data)).size) == (stated, expected_size)
    assert image["image_url"]["detail"] == "high"


@pytest.mark.parametrize("as_url", [False, True])
@pytest.mark.parametrize(
    ("fields", "kind"),
    [({"protocol": "gemini"}, "PNG"), ({"models": [{"name": "google/gemini-3-pro"}]}, "PNG"), ({}, "GIF")],
)
async def test_gifs_are_converted_for_gemini(asking: Asking, fields: dict[str, Any], kind: str, as_url: bool) -> None:
    """It refuses the chat for one: https://github.com/microsoft/vscode/issues/286628, 2026-01."""
    picture = make_part(encode_image("GIF", 8, 8), "image/gif", as_url=as_url)
    async with asking([{"steps": [{"content": "done"}]}], **fields) as gateway:
        model = fields.get("models", [{"name": "sim-1"}])[0]["name"]
        body = await read_body(gateway, llm_pb2.Message(role="user", content=[picture]), model=model)
    if "protocol" in fields:
        found = body["contents"][0]["parts"][0]["inlineData"]
        mime_type, data = found["mimeType"], base64.b64decode(found["data"])
    else:
        mime_type, data = decode_image(body["messages"][0]["content"][0])
    assert (mime_type, Image.open(io.BytesIO(data)).format) == (f"image/{kind.lower()}", kind)


async def test_an_image_with_too_many_bytes_becomes_a_jpeg(asking: Asking) -> None:
    noisy = encode_image("PNG", 1900, 1900, is_noisy=True)
    assert len(noisy) > BYTES_MAX
    [image] = await read_parts(asking, make_part(noisy, "image/png"))
    mime_type, data = decode_image(image)
    assert (mime_type, len(data) <= BYTES_MAX) == ("image/jpeg", True)


async def test_an_image_within_the_limits_is_sent_unchanged(asking: Asking) -> None:
    data = encode_image("PNG", SIDE_PX_MAX, 10)
    [image, other] = await read_parts(asking, make_part(data, "image/png"), make_part(b"what is it?", "image/png"))
    assert decode_image(image) == ("image/png", data)
    assert decode_image(other)[1] == b"what is it?"


async def test_an_unusable_image_is_replaced_by_a_note(asking: Asking) -> None:
    huge = bytearray(encode_image("PNG", 10, 10))
    huge[16:24] = (30_000).to_bytes(4, "big") * 2
    cut = encode_image("JPEG", 3000, 3000)[:2000]
    parts = await read_parts(asking, make_part(bytes(huge), "image/png"), make_part(cut, "image/jpeg"))
    assert "".join(part["text"] for part in parts).split("\n\n") == [
        "[not shown: the picture has more than 64 megapixels]",
        "[not shown: the picture is damaged and cannot be read]",
    ]


@pytest.mark.parametrize("as_url", [False, True])
@pytest.mark.parametrize(
    ("kind", "declared"),
    [("JPEG", "image/png"), ("JPEG", "image/jpg"), ("PNG", "application/x"), ("WEBP", "image/jpeg")],
)
async def test_an_images_type_is_taken_from_its_bytes(asking: Asking, kind: str, declared: str, as_url: bool) -> None:
    """Claude refuses a wrong type, in each later request of the chat too:
    https://github.com/anthropics/claude-code/issues/11975, 2025-12."""
    data = encode_image(kind, 8, 8)
    [image] = await read_parts(asking, make_part(data, declared, as_url=as_url))
    assert decode_image(image) == (f"image/{kind.lower()}", data)
