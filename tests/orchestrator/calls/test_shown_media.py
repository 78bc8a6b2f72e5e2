"""Pictures and sounds that tools give: shown to models that are known to take them; others get the text alone."""

from __future__ import annotations

import pytest

from headrace.v1 import llm_pb2
from tests.support.orchestrator import ANSWER, Serve, Suite, ask, call_tool
from tests.support.orchestrator.media import GIF, give

TURNS = (call_tool("look"), ANSWER)


def result_of(suite: Suite) -> llm_pb2.Message:
    (result,) = [message for message in suite.llm.requests[-1].messages if message.role == "tool"]
    return result


async def test_a_model_that_sees_images_is_shown_them_beside_the_text(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        give(suite, "tools", "vision", a=GIF, b=GIF + b"b")
        events = await ask(suite)
        text, *images = result_of(suite).content
        logged = (await suite.client.chat(suite.chat_id)).SerializeToString()
    assert text.text == "[image/gif]"
    assert [(part.image.data, part.image.mime_type) for part in images] == [
        (GIF, "image/gif"),
        (GIF + b"b", "image/gif"),
    ]
    assert [event["result"] for event in events if event["type"] == "tool.result"] == ["[image/gif]"]
    assert GIF not in logged


@pytest.mark.parametrize("capabilities", [(), ("tools",)], ids=["unknown", "blind"])
async def test_other_models_get_the_text_alone(serve: Serve, capabilities: tuple[str, ...]) -> None:
    async with serve(*TURNS) as suite:
        give(suite, *capabilities, a=GIF)
        await ask(suite)
        assert [part.text for part in result_of(suite).content] == ["[image/gif]"]


async def test_a_file_that_is_no_picture_or_too_large_or_gone_is_not_shown(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        give(suite, "vision", a=b"text", b=GIF + bytes(10 * 1024 * 1024), c=GIF)
        suite.tools.plays["look"][0][0].result.shown_paths.append("outputs/gone.gif")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a delta
        await ask(suite)
        assert [part.image.data for part in result_of(suite).content[1:]] == [GIF]


async def test_a_sound_is_for_models_that_hear(serve: Serve) -> None:
    wave = b"RIFF\x24\0\0\0WAVEfmt "
    async with serve(*TURNS) as suite:
        give(suite, "tools", "audio", a=wave, b=GIF)
        await ask(suite)
        (shown,) = result_of(suite).content[1:]
    assert shown.audio == llm_pb2.AudioPart(data=wave, mime_type="audio/wav")


async def test_a_file_that_does_not_come_in_time_is_not_shown(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        give(suite, "vision", a=GIF)
        suite.tools.breaking.add("ReadFile")
        events = await ask(suite)
        assert [part.text for part in result_of(suite).content] == ["[image/gif]"]
    assert events[-1]["type"] == "run.complete"
