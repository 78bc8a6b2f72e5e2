"""Which of an agent's models answers: chosen by the chat's preference and by the list_media in the query."""

import asyncio
import json
from typing import Any

import pytest

from headrace.errors import Overloaded
from headrace.v1 import common_pb2, llm_pb2
from tests.support.orchestrator import ANSWER, Serve, Suite, ask

MODELS = {"vision": {"model": "eyes"}, "code": {"model": "coder", "temperature": 0.1}}


def upload(reference_id: str, kind: str, name: str, mime_type: str) -> common_pb2.Reference:
    given: dict[str, Any] = {"id": reference_id, "type": kind, "name": name, "mime_type": mime_type, "size_bytes": 3}
    return common_pb2.Reference(meta=json.dumps({"path": f"uploads/{name}"}), **given)


PICTURE = upload("r1", "image", "a.png", "image/png")


def set_capabilities(suite: Suite, **capabilities: list[str]) -> None:
    """Set the capabilities that the gateway reports for models."""
    suite.tools.files["uploads/a.png"] = b"png"
    suite.llm.models = [llm_pb2.ModelInfo(model=model, capabilities=given) for model, given in capabilities.items()]


async def ask_for_model(suite: Suite, **fields: Any) -> str:
    """Ask, and return the model that answered."""
    await ask(suite, **fields)
    return suite.llm.requests[-1].model


@pytest.mark.parametrize(("sees", "model"), [(["tools"], "eyes"), (["vision"], "m"), ([], "m")])
async def test_an_image_selects_the_vision_model_if_the_default_is_known_to_lack_vision(
    serve: Serve, sees: list[str], model: str
) -> None:
    async with serve(ANSWER, models=MODELS) as suite:
        set_capabilities(suite, m=sees)
        assert await ask_for_model(suite, references=[PICTURE]) == model
        assert suite.llm.requests[-1].provider_key == "scripted", "fields that `models` does not set stay"
        assert await ask_for_model(suite) == "m", "the next run has no image"


async def test_an_image_without_a_vision_model_is_refused_without_a_model_call(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        set_capabilities(suite, m=["tools"])
        events = await ask(suite, references=[PICTURE])
        assert suite.llm.requests == []
    assert events[-1]["error"]["code"] == "INVALID_REQUEST"
    assert "model 'm' sees no images" in events[-1]["error"]["message"]


async def test_a_model_preference_lasts_for_the_chat_until_it_is_removed(serve: Serve) -> None:
    async with serve(ANSWER, models=MODELS) as suite:
        assert await ask_for_model(suite, params='{"modelPref":"code","mine":1}') == "coder"
        assert suite.llm.requests[-1].temperature == 0.1
        assert await ask_for_model(suite) == "coder"
        assert await ask_for_model(suite, params='{"modelPref":""}') == "m"
        assert await ask_for_model(suite, params='{"modelPref":"vision"}') == "eyes"
    async with serve(ANSWER, models={"code": {}}) as suite:
        assert await ask_for_model(suite, params='{"modelPref":"code"}') == "m", (
            "an agent without this model set_up_files its own"
        )


async def test_a_preferred_model_overrides_that_of_a_stage(serve: Serve) -> None:
    own = {"modelConfig": {"model": "stage", "top_p": 0.5}}
    async with serve(ANSWER, models=MODELS, react=own) as suite:
        assert await ask_for_model(suite) == "stage"
        assert await ask_for_model(suite, params='{"modelPref":"code"}') == "coder"
        assert suite.llm.requests[-1].top_p == 0.5
        assert await ask_for_model(suite, params='[{"modelPref":"code"}]') == "coder", (
            "params of another form have no preference"
        )


SOUND = upload("r2", "audio", "a.wav", "audio/wav")
BOOK = upload("r3", "pdf", "a.pdf", "application/pdf")
NO_TOOLS: dict[str, Any] = {"toolConfig": None}


def list_media(suite: Suite) -> list[llm_pb2.ContentPart]:
    """Return the audio and file parts of the last request."""
    parts = [part for message in suite.llm.requests[-1].messages for part in message.content]
    return [part for part in parts if part.WhichOneof("part") in ("audio", "file")]


def set_up_files(suite: Suite, *capabilities: str) -> None:
    """Put the files into the workspace, and set the capabilities that the gateway reports for the model."""
    set_capabilities(suite, m=[*capabilities])
    suite.tools.files |= {"uploads/a.wav": b"wav", "uploads/a.pdf": b"pdf"}


@pytest.mark.parametrize("fields", [{}, NO_TOOLS], ids=["tools", "no tools"])
async def test_sounds_and_documents_are_sent_to_models_that_accept_them(serve: Serve, fields: dict[str, Any]) -> None:
    async with serve(ANSWER, **fields) as suite:
        set_up_files(suite, "audio", "files")
        await ask(suite, references=[SOUND, BOOK])
        sound, book = list_media(suite)
    assert sound.audio == llm_pb2.AudioPart(data=b"wav", mime_type="audio/wav")
    assert book.file == llm_pb2.FilePart(data=b"pdf", mime_type="application/pdf", name="a.pdf")


@pytest.mark.parametrize("capabilities", [[], ["tools"]], ids=["unknown", "deaf"])
async def test_for_other_models_sounds_and_documents_are_named_for_tools_to_read(
    serve: Serve, capabilities: list[str]
) -> None:
    async with serve(ANSWER) as suite:
        set_up_files(suite, *capabilities)
        events = await ask(suite, references=[SOUND, BOOK])
        assert not list_media(suite)
        assert "uploads/a.wav" in suite.llm.requests[-1].messages[-1].content[-1].text
    assert events[-1]["type"] == "run.complete"


async def test_without_tools_a_model_of_unknown_capabilities_gets_the_files(serve: Serve) -> None:
    async with serve(ANSWER, **NO_TOOLS) as suite:
        set_up_files(suite)
        await ask(suite, references=[SOUND, BOOK])
        assert len(list_media(suite)) == 2


@pytest.mark.parametrize(
    ("reference", "rule"), [(SOUND, "takes no audio files"), (BOOK, "takes no pdf files")], ids=["sound", "document"]
)
async def test_a_file_that_neither_model_nor_tools_can_read_is_refused(
    serve: Serve, reference: common_pb2.Reference, rule: str
) -> None:
    async with serve(ANSWER, **NO_TOOLS) as suite:
        set_up_files(suite, "tools")
        events = await ask(suite, references=[reference])
        assert suite.llm.requests == []
    error = events[-1]["error"]
    assert (error["code"], error["details"]["field"]) == ("INVALID_REQUEST", "references")
    assert rule in error["details"]["rule"]


async def test_a_picture_is_sent_with_the_callers_level_of_detail(serve: Serve) -> None:
    reference = common_pb2.Reference()
    reference.CopyFrom(PICTURE)
    reference.meta = json.dumps({"path": "uploads/a.png", "detail": "low"})
    async with serve(ANSWER) as suite:
        set_capabilities(suite, m=["vision"])
        await ask(suite, references=[reference])
        parts = [part.image for message in suite.llm.requests[-1].messages for part in message.content]
    assert [image.detail for image in parts if image.data] == ["low"]


async def test_agents_say_whether_they_are_simulated_and_which_is_the_default(serve: Serve) -> None:
    async with serve(default_agent="react", modelConfig={"providerKey": "p", "model": "real"}) as suite:
        suite.llm.models = [llm_pb2.ModelInfo(model="m", is_simulated=True), llm_pb2.ModelInfo(model="real")]
        agents = {agent.key: agent for agent in await suite.client.agents()}
        assert {key: agent.is_simulated for key, agent in agents.items()} == {"oneshot": True, "react": False}
        assert {key: agent.is_default for key, agent in agents.items()} == {"oneshot": False, "react": True}
        suite.llm.models = Overloaded("busy")
        await asyncio.sleep(3)
        assert not any(agent.is_simulated for agent in await suite.client.agents())
