"""Which of its models an agent answers with: by the chat's wish, and by what the query shows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headrace.v1 import common_pb2, llm_pb2
from tests.orchestrator.conftest import House, Open, content, finish
from tests.orchestrator.people import ask

ANSWER = content("All ", "good.") + finish()

MODELS = {"vision": {"model": "eyes"}, "code": {"model": "coder", "temperature": 0.1}}

PICTURE = common_pb2.Reference(
    id="r1",
    type="image",
    name="a.png",
    mime_type="image/png",
    size_bytes=3,
    meta=json.dumps({"path": "uploads/a.png"}),
)


def knows(it: House, **capabilities: list[str]) -> None:
    """Have the gateway say what models can do."""
    it.tools.files["uploads/a.png"] = b"png"
    it.llm.models = [llm_pb2.ModelInfo(model=model, capabilities=given) for model, given in capabilities.items()]


async def asked(it: House, **fields: Any) -> str:
    """The model that answers."""
    await ask(it, **fields)
    return it.llm.requests[-1].model


@pytest.mark.parametrize(("sees", "model"), [(["tools"], "eyes"), (["vision"], "m"), ([], "m")])
async def test_an_image_picks_vision_where_the_model_is_known_to_see_none(
    house: Open, sees: list[str], model: str
) -> None:
    async with house(ANSWER, models=MODELS) as it:
        knows(it, m=sees)
        assert await asked(it, references=[PICTURE]) == model
        assert it.llm.requests[-1].provider_key == "scripted", "what the model does not say stays"
        assert await asked(it) == "m", "the next run has no image"


async def test_an_image_that_no_model_sees_is_refused_before_it_is_shown(house: Open) -> None:
    async with house(ANSWER) as it:
        knows(it, m=["tools"])
        events = await ask(it, references=[PICTURE])
        assert it.llm.requests == []
    assert events[-1]["error"]["code"] == "INVALID_REQUEST"
    assert "model 'm' sees no images" in events[-1]["error"]["message"]


async def test_a_preference_lasts_for_the_chat_until_it_is_taken_back(house: Open) -> None:
    async with house(ANSWER, models=MODELS) as it:
        assert await asked(it, params='{"modelPref":"code","mine":1}') == "coder"
        assert it.llm.requests[-1].temperature == 0.1
        assert await asked(it) == "coder"
        assert await asked(it, params='{"modelPref":""}') == "m"
        assert await asked(it, params='{"modelPref":"vision"}') == "eyes"
    async with house(ANSWER, models={"code": {}}) as it:
        assert await asked(it, params='{"modelPref":"code"}') == "m", "an agent without it goes on as it is"


async def test_a_preferred_model_stands_before_that_of_a_stage(house: Open) -> None:
    own = {"modelConfig": {"model": "stage", "top_p": 0.5}}
    async with house(ANSWER, models=MODELS, react=own) as it:
        assert await asked(it) == "stage"
        assert await asked(it, params='{"modelPref":"code"}') == "coder"
        assert it.llm.requests[-1].top_p == 0.5
        assert await asked(it, params='[{"modelPref":"code"}]') == "coder", "params of another form say nothing"


SOUND = common_pb2.Reference(
    id="r2",
    type="audio",
    name="a.wav",
    mime_type="audio/wav",
    size_bytes=3,
    meta=json.dumps({"path": "uploads/a.wav"}),
)
BOOK = common_pb2.Reference(
    id="r3",
    type="pdf",
    name="a.pdf",
    mime_type="application/pdf",
    size_bytes=3,
    meta=json.dumps({"path": "uploads/a.pdf"}),
)
NO_TOOLS: dict[str, Any] = {"toolConfig": None}


def media(it: House) -> list[llm_pb2.ContentPart]:
    """The sounds and files that the model is shown."""
    parts = [part for message in it.llm.requests[-1].messages for part in message.content]
    return [part for part in parts if part.WhichOneof("part") in ("audio", "file")]


def keeps(it: House, *capabilities: str) -> None:
    """Have the workspace hold the files, and the gateway say what the model can do."""
    knows(it, m=[*capabilities])
    it.tools.files |= {"uploads/a.wav": b"wav", "uploads/a.pdf": b"pdf"}


@pytest.mark.parametrize("fields", [{}, NO_TOOLS], ids=["tools", "no tools"])
async def test_sounds_and_documents_are_shown_to_models_that_take_them(house: Open, fields: dict[str, Any]) -> None:
    async with house(ANSWER, **fields) as it:
        keeps(it, "audio", "files")
        await ask(it, references=[SOUND, BOOK])
        sound, book = media(it)
    assert sound.audio == llm_pb2.AudioPart(data=b"wav", mime_type="audio/wav")
    assert book.file == llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name="a.pdf")


@pytest.mark.parametrize("capabilities", [[], ["tools"]], ids=["unknown", "deaf"])
async def test_other_models_have_tools_read_them(house: Open, capabilities: list[str]) -> None:
    async with house(ANSWER) as it:
        keeps(it, *capabilities)
        events = await ask(it, references=[SOUND, BOOK])
        assert not media(it)
        assert "uploads/a.wav" in it.llm.requests[-1].messages[-1].content[-1].text
    assert events[-1]["type"] == "run.complete"


async def test_without_tools_a_model_that_nothing_is_known_of_is_tried(house: Open) -> None:
    async with house(ANSWER, **NO_TOOLS) as it:
        keeps(it)
        await ask(it, references=[SOUND, BOOK])
        assert len(media(it)) == 2


@pytest.mark.parametrize(
    ("reference", "rule"), [(SOUND, "takes no audio files"), (BOOK, "takes no pdf files")], ids=["sound", "document"]
)
async def test_what_neither_model_nor_tools_read_is_refused(
    house: Open, reference: common_pb2.Reference, rule: str
) -> None:
    async with house(ANSWER, **NO_TOOLS) as it:
        keeps(it, "tools")
        events = await ask(it, references=[reference])
        assert it.llm.requests == []
    error = events[-1]["error"]
    assert (error["code"], error["details"]["field"]) == ("INVALID_REQUEST", "references")
    assert rule in error["details"]["rule"]


async def test_a_picture_is_looked_at_as_closely_as_the_caller_says(house: Open) -> None:
    reference = common_pb2.Reference()
    reference.CopyFrom(PICTURE)
    reference.meta = json.dumps({"path": "uploads/a.png", "detail": "low"})
    async with house(ANSWER) as it:
        knows(it, m=["vision"])
        await ask(it, references=[reference])
        parts = [part.image for message in it.llm.requests[-1].messages for part in message.content]
    assert [image.detail for image in parts if image.data] == ["low"]
