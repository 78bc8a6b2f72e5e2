"""StreamChat over gRPC with a provider on a real socket: which deltas arrive, in which order, byte for byte."""

import json
from typing import Any

import pytest

from headrace.v1 import llm_pb2
from tests.support.llm_gateway.gateway import Asking

TEXTS = ["\n\n", " ", "half", "-word", "\r\n", "水", "车\n", "\t", '"quoted"', "👩‍👩‍👧", "data: x\n\n", "\u2028"]


async def test_deltas_arrive_unmerged_and_byte_for_byte_between_started_and_finish(asking: Asking) -> None:
    async with asking([{"steps": [{"reasoning": TEXTS}, {"content": TEXTS}]}]) as gateway:
        result = await gateway.chat()
    expected = ["started", *["reasoning"] * len(TEXTS), *["content"] * len(TEXTS), "usage", "finish"]
    assert result.kinds == expected
    assert result.content == TEXTS
    assert [delta.reasoning for delta in result.deltas if delta.reasoning] == TEXTS
    started = result.deltas[0].started
    assert (started.provider, started.model, started.attempt) == ("sim", "sim-1", 1)
    assert result.deltas[-1].finish.reason == "stop"
    assert result.usage.output_tokens == 2 * len(TEXTS)


async def test_a_thousand_fast_deltas_are_not_merged(asking: Asking) -> None:
    async with asking() as gateway:
        assert (await gateway.chat(model="bench-1000x0ms")).content == [" headrace"] * 1000


async def test_the_last_usage_is_reported_with_its_cost(asking: Asking) -> None:
    last = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "completion_tokens_details": {"reasoning_tokens": 40, "invented": 1},
        "prompt_tokens_details": {"cached_tokens": 900},
    }
    steps = [{"usage": {"prompt_tokens": 1}}, {"content": "x"}, {"usage": last}]
    models = [{"name": "sim-1", "price": {"inputPerMTok": 1.0, "outputPerMTok": 10.0}}]
    async with asking([{"steps": steps}], models=models) as gateway:
        usage = (await gateway.chat()).usage
    assert (usage.input_tokens, usage.reasoning_tokens, usage.cached_tokens) == (1000, 40, 900)
    assert usage.cost_usd == pytest.approx(0.002)
    assert not usage.estimated


async def test_an_estimated_input_includes_its_images(asking: Asking) -> None:
    choice = {"delta": {"content": "x"}, "finish_reason": "stop"}
    answer = json.dumps({"choices": [choice], "usage": {"completion_tokens": 3}})
    steps = [{"raw": f"data: {answer}\n\ndata: [DONE]\n\n"}, {"end": True}]
    picture = llm_pb2.ContentPart(image=llm_pb2.ImagePart(url="https://example.com/a.png"))
    async with asking([{"steps": steps, "opening": False}]) as gateway:
        usage = (await gateway.chat(llm_pb2.Message(role="user", content=[picture] * 2))).usage
    assert usage.estimated
    assert 2_000 <= usage.input_tokens < 2_100


@pytest.mark.parametrize(
    ("prices", "dollars"),
    [({}, 10.0), ({"cachedInputPerMTok": 1.0}, 5.5), ({"cachedInputPerMTok": 1.0, "cacheWritePerMTok": 12.5}, 6.0)],
)
async def test_cached_tokens_cost_what_the_provider_bills(
    asking: Asking, prices: dict[str, float], dollars: float
) -> None:
    usage: dict[str, Any] = {
        "input_tokens": 300_000,
        "cache_read_input_tokens": 500_000,
        "cache_creation_input_tokens": 200_000,
        "output_tokens": 0,
    }
    models = [{"name": "sim-1", "price": {"inputPerMTok": 10.0} | prices}]
    steps = [{"content": "x"}, {"usage": usage}]
    async with asking([{"steps": steps}], protocol="anthropic", models=models) as gateway:
        spent = (await gateway.chat()).usage
    assert (spent.input_tokens, spent.cached_tokens, spent.cache_write_tokens) == (1_000_000, 500_000, 200_000)
    assert spent.cost_usd == pytest.approx(dollars)


async def test_the_first_key_that_is_set_is_sent(asking: Asking) -> None:
    async with asking(apiKeys=["env:UNSET_KEY", "env:SIM_KEY"]) as gateway:
        gateway.env["SIM_KEY"] = "sk-12345678"
        assert (await gateway.chat()).error is None
        assert gateway.sim.requests[0].headers["authorization"] == "Bearer sk-12345678"


async def test_a_missing_context_window_comes_from_the_built_in_table(asking: Asking) -> None:
    given: list[dict[str, Any]] = [{"name": "gpt-4o"}, {"name": "gpt-4o-mini", "contextWindow": 9000}, {"name": "new"}]
    async with asking(models=given) as gateway:
        reply = await gateway.llm.ListModels(llm_pb2.ListModelsRequest(), timeout=50)
    windows = {model.model: model.context_window_tokens for model in reply.models}
    assert [windows[model["name"]] for model in given] == [128_000, 9_000, 0]


async def test_models_are_listed_in_the_files_order(asking: Asking) -> None:
    async with asking() as gateway:
        reply = await gateway.llm.ListModels(llm_pb2.ListModelsRequest(), timeout=50)
    assert [model.model for model in reply.models] == ["sim-1", "idle", "bench"]
    assert reply.models[0].context_window_tokens == 1000
    assert list(reply.models[0].capabilities) == ["tools", "reasoning", "vision"]
