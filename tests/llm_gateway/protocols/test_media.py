"""Audio and files in requests, in each provider's form, and refusals before anything is sent."""

from typing import Any

import pytest

from headrace.errors import InvalidRequest
from headrace.v1 import llm_pb2
from services.llm_gateway.protocols.common.media import BYTES_MAX, PARTS_MAX
from tests.support.llm_gateway.conversation import SYSTEM, TOOL, answers, asks, call, read_body
from tests.support.llm_gateway.gateway import Asking

IMAGE = llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=b"png", mime_type="image/png"))
SOUND = llm_pb2.ContentPart(audio=llm_pb2.AudioPart(data=b"mp3", mime_type="audio/mpeg"))
WAVE = llm_pb2.ContentPart(audio=llm_pb2.AudioPart(url="data:audio/x-wav;base64,d2F2"))
REPORT = llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name="a.pdf"))
ALL: dict[str, Any] = {"models": [{"name": "sim-1"}]}


def user(*parts: llm_pb2.ContentPart) -> llm_pb2.Message:
    return llm_pb2.Message(role="user", content=[llm_pb2.ContentPart(text="what is it?"), *parts])


async def read_content(asking: Asking, message: llm_pb2.Message, **fields: Any) -> list[Any]:
    async with asking(**fields) as gateway:
        return (await read_body(gateway, message))["messages"][0]["content"][1:]


async def test_openai_receives_audio_and_files(asking: Asking) -> None:
    assert await read_content(asking, user(SOUND, WAVE, REPORT), **ALL) == [
        {"type": "input_audio", "input_audio": {"data": "bXAz", "format": "mp3"}},
        {"type": "input_audio", "input_audio": {"data": "d2F2", "format": "wav"}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,cGRm"}},
    ]


async def test_anthropic_receives_documents(asking: Asking) -> None:
    assert await read_content(asking, user(REPORT), protocol="anthropic", **ALL) == [
        {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": "cGRm"},
            "title": "a.pdf",
        }
    ]


@pytest.mark.parametrize(
    ("part", "fields", "rule"),
    [
        (SOUND, {"protocol": "anthropic", **ALL}, "must be no audio: the protocol of model 'sim-1' has none"),
        (SOUND, {}, "model 'sim-1' takes no audio: its capabilities lack 'audio'"),
        (REPORT, {}, "model 'sim-1' takes no file: its capabilities lack 'files'"),
        (IMAGE, {"models": [{"name": "sim-1", "capabilities": ["tools"]}]}, "takes no image: its capabilities lack"),
        (llm_pb2.ContentPart(audio=llm_pb2.AudioPart(data=b"o", mime_type="audio/ogg")), ALL, "must be audio/wav"),
        (llm_pb2.ContentPart(file=llm_pb2.FilePart(url="https://example.org/a.pdf")), ALL, "must have data"),
    ],
    ids=["no sounds at anthropic", "no sound", "no file", "no image", "another sound", "an address"],
)
async def test_unsupported_media_are_refused_by_place_and_rule(
    asking: Asking, part: llm_pb2.ContentPart, fields: dict[str, Any], rule: str
) -> None:
    async with asking(**fields) as gateway:
        result = await gateway.chat(SYSTEM, user(part))
        assert not gateway.sim.requests
    assert isinstance(result.error, InvalidRequest)
    assert result.failure.metadata["field"] == "messages[1].content[1]"
    assert rule in result.failure.metadata["rule"]


@pytest.mark.parametrize(
    ("parts", "refused"),
    [
        ([IMAGE] * (PARTS_MAX + 1), PARTS_MAX + 1),
        ([llm_pb2.ContentPart(image=llm_pb2.ImagePart(data=bytes(BYTES_MAX // 2), mime_type="image/png"))] * 2, 2),
    ],
    ids=["too many", "too large"],
)
async def test_the_media_of_a_request_are_limited(
    asking: Asking, parts: list[llm_pb2.ContentPart], refused: int
) -> None:
    async with asking() as gateway:
        result = await gateway.chat(user(*parts))
        assert not gateway.sim.requests
    assert isinstance(result.error, InvalidRequest)
    assert result.failure.metadata["field"] == f"messages[0].content[{refused}]"


async def test_a_fallback_without_vision_is_skipped_for_images(asking: Asking) -> None:
    models: list[dict[str, Any]] = [{"name": "sim-1"}, {"name": "blind", "capabilities": ["tools"]}, {"name": "idle"}]
    fallback = ["sim/blind", "sim/idle"]
    async with asking([{"steps": [{"status": 503}]}], models=models, fallback=fallback) as gateway:
        await gateway.chat(user(IMAGE))
        assert [request.body["model"] for request in gateway.sim.requests] == ["sim-1", "idle"]


@pytest.mark.parametrize("protocol", ["openai", "openai_responses"])
async def test_a_file_without_a_name_gets_one(asking: Asking, protocol: str) -> None:
    """OpenAI refuses it otherwise: https://github.com/laravel/ai/pull/324, 2026-03."""
    nameless = llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf"))
    async with asking(protocol=protocol, **ALL) as gateway:
        body = await read_body(gateway, user(nameless))
    part = (body["messages"] if protocol == "openai" else body["input"])[0]["content"][1]
    assert part.get("file", part)["filename"] == "document.pdf"


async def test_bedrock_has_few_documents_and_images_with_names_of_their_own(asking: Asking) -> None:
    """This includes documents in tool results: https://github.com/maximhq/bifrost/issues/7003, https://github.com/BerriAI/litellm/pull/30093
    (2026); one more than five, or than twenty with images, ends the chat:
    https://github.com/aws-samples/generative-ai-use-cases/issues/1685 (2026-08), https://github.com/cline/cline/issues/1844
    (2025-02)."""
    files = [
        llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name=name))
        for name in ("old.pdf", "A.pdf", "", "\u6c34.pdf")
    ]
    long = [
        llm_pb2.ContentPart(file=llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name=f"{'b' * size}.pdf"))
        for size in (300, 299)
    ]
    result = answers("a")
    result.content.append(REPORT)
    async with asking([{"steps": [{"content": "done"}]}], protocol="bedrock", **ALL) as gateway:
        body = await read_body(gateway, user(*files), asks(call("a")), result, user(REPORT), tools=[TOOL])
        named = await read_body(gateway, user(*long))
        many = await read_body(gateway, user(IMAGE, IMAGE), asks(call("a")), answers("a"), user(REPORT, *[IMAGE] * 18))
    first, _, last = (turn["content"] for turn in body["messages"])
    blocks = (*first, *last[0]["toolResult"]["content"], *last)
    names = [block["document"]["name"] for block in blocks if "document" in block]
    assert names == ["A", "document", "document (2)", "a (2)", "a (3)"]
    assert first[1] == {"text": "[old: shown in an earlier turn]"}
    lengths = [len(block["document"]["name"]) for block in named["messages"][0]["content"][1:]]
    assert len(lengths) == 2
    assert max(lengths) <= 200
    assert [[*block] for block in many["messages"][0]["content"]] == [["text"], ["text"], ["image"]]


async def test_wav_audio_is_sent_to_gemini_as_audio_wav(asking: Asking) -> None:
    async with asking([{"steps": [{"content": "done"}]}], protocol="gemini", **ALL) as gateway:
        parts = (await read_body(gateway, user(WAVE, SOUND)))["contents"][0]["parts"]
    assert [part["inlineData"]["mimeType"] for part in parts[1:]] == ["audio/wav", "audio/mpeg"]


@pytest.mark.parametrize("as_url", [False, True])
async def test_a_text_file_is_sent_as_a_text_document(asking: Asking, as_url: bool) -> None:
    """Claude refuses any other kind: https://github.com/langchain-ai/langchain/issues/37576 (2026-05),
    https://github.com/danny-avila/LibreChat/issues/14485 (2026-07)."""
    given: dict[str, Any] = (
        {"url": "data:text/csv;base64,YSxi"} if as_url else {"data": b"a,b", "mime_type": "text/csv"}
    )
    table = llm_pb2.ContentPart(file=llm_pb2.FilePart(name="a.csv", **given))
    [document] = await read_content(asking, user(table), protocol="anthropic", **ALL)
    assert document["source"] == {"type": "text", "media_type": "text/plain", "data": "a,b"}
    async with asking([{"steps": [{"content": "done"}]}], protocol="bedrock", **ALL) as gateway:
        blocks = (await read_body(gateway, user(table, REPORT)))["messages"][0]["content"]
    assert [block["document"]["format"] for block in blocks[1:]] == ["csv", "pdf"]
