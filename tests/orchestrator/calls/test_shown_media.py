"""Pictures and sounds that tools give: shown to models that are known to take them; others get the text alone."""

from __future__ import annotations

import pytest

from headrace.v1 import llm_pb2, tools_pb2
from tests.orchestrator.conftest import House, Open, call, content, finish
from tests.orchestrator.people import ask

GIF = b"GIF89a\x02\x00\x03\x00" + bytes(20)
ANSWER = content("All ", "good.") + finish()
TURNS = (call("look") + finish("tool_calls"), ANSWER)


def give(it: House, *capabilities: str, **files: bytes) -> None:
    """Have the tool give these files as pictures, and the gateway say what the model can do."""
    it.llm.models = [llm_pb2.ModelInfo(model="m", capabilities=capabilities)]
    it.tools.files = {f"outputs/{name}.gif": data for name, data in files.items()}
    result = tools_pb2.ToolOutcome(ok=True, result="[image/gif]", shown_paths=sorted(it.tools.files))
    it.tools.plays["look"] = [[tools_pb2.ToolDelta(result=result)]]


def result_of(it: House) -> llm_pb2.Message:
    (result,) = [message for message in it.llm.requests[-1].messages if message.role == "tool"]
    return result


async def test_a_model_that_sees_images_is_shown_them_beside_the_text(house: Open) -> None:
    async with house(*TURNS) as it:
        give(it, "tools", "vision", a=GIF, b=GIF + b"b")
        events = await ask(it)
        text, *images = result_of(it).content
        logged = (await it.client.chat(it.chat_id)).SerializeToString()
    assert text.text == "[image/gif]"
    assert [(part.image.data, part.image.mime_type) for part in images] == [
        (GIF, "image/gif"),
        (GIF + b"b", "image/gif"),
    ]
    assert [event["result"] for event in events if event["type"] == "tool.result"] == ["[image/gif]"]
    assert GIF not in logged


@pytest.mark.parametrize("capabilities", [(), ("tools",)], ids=["unknown", "blind"])
async def test_other_models_get_the_text_alone(house: Open, capabilities: tuple[str, ...]) -> None:
    async with house(*TURNS) as it:
        give(it, *capabilities, a=GIF)
        await ask(it)
        assert [part.text for part in result_of(it).content] == ["[image/gif]"]


async def test_a_file_that_is_no_picture_or_too_large_or_gone_is_not_shown(house: Open) -> None:
    async with house(*TURNS) as it:
        give(it, "vision", a=b"text", b=GIF + bytes(10 * 1024 * 1024), c=GIF)
        it.tools.plays["look"][0][0].result.shown_paths.append("outputs/gone.gif")  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a delta
        await ask(it)
        assert [part.image.data for part in result_of(it).content[1:]] == [GIF]


async def test_a_sound_is_for_models_that_hear(house: Open) -> None:
    wave = b"RIFF\x24\0\0\0WAVEfmt "
    async with house(*TURNS) as it:
        give(it, "tools", "audio", a=wave, b=GIF)
        await ask(it)
        (shown,) = result_of(it).content[1:]
    assert shown.audio == llm_pb2.AudioPart(data=wave, mime_type="audio/wav")


async def test_a_file_that_does_not_come_in_time_is_not_shown(house: Open) -> None:
    async with house(*TURNS) as it:
        give(it, "vision", a=GIF)
        it.tools.breaking.add("ReadFile")
        events = await ask(it)
        assert [part.text for part in result_of(it).content] == ["[image/gif]"]
    assert events[-1]["type"] == "run.complete"
