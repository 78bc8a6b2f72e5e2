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
