"""StreamChat over gRPC, the provider's frames on a real socket: what arrives, in which order, byte for byte."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.v1 import llm_pb2
from tests.support.llm_gateway.gateway import Asking

TEXTS = ["\n\n", " ", "half", "-word", "\r\n", "水", "车\n", "\t", '"quoted"', "👩‍👩‍👧", "data: x\n\n", "\u2028"]


def frame(delta: dict[str, Any], **choice: Any) -> dict[str, Any]:
    return {"frame": {"choices": [{"index": 0, "delta": delta, **choice}]}}


async def test_deltas_arrive_one_by_one_byte_for_byte_between_started_and_finish(asking: Asking) -> None:
    async with asking([{"steps": [{"reasoning": TEXTS}, {"content": TEXTS}]}]) as gateway:
        heard = await gateway.hear()
    expected = ["started", *["reasoning"] * len(TEXTS), *["content"] * len(TEXTS), "usage", "finish"]
    assert heard.kinds == expected
    assert heard.content == TEXTS
    assert [delta.reasoning for delta in heard.deltas if delta.reasoning] == TEXTS
    started = heard.deltas[0].started
    assert (started.provider, started.model, started.attempt) == ("sim", "sim-1", 1)
    assert heard.deltas[-1].finish.reason == "stop"
    assert heard.usage.output_tokens == 2 * len(TEXTS)


async def test_one_byte_writes_give_the_same_deltas(asking: Asking) -> None:
    async with asking([{"steps": [{"content": TEXTS}], "oneByteWrites": True}]) as gateway:
        assert (await gateway.hear()).content == TEXTS


async def test_a_character_split_over_two_writes_arrives_whole(asking: Asking) -> None:
    raw = 'data: {"choices":[{"delta":{"content":"水车"}}]}\r\n\r\n'.encode()
    at = raw.index("车".encode()) + 1
    halves = [raw[:at].decode("latin-1"), raw[at:].decode("latin-1")]
    async with asking([{"steps": [{"raw": halves[0]}, {"waitMs": 50}, {"raw": halves[1]}]}]) as gateway:
        assert (await gateway.hear()).content == ["水车"]


async def test_a_thousand_deltas_flat_out_are_a_thousand_deltas(asking: Asking) -> None:
    async with asking() as gateway:
        assert (await gateway.hear(model="bench-1000x0ms")).content == [" headrace"] * 1000


async def test_a_frame_with_several_things_gives_one_delta_of_each_in_order(asking: Asking) -> None:
    both = frame(
        {
            "reasoning_content": "r",
            "content": "c",
            "tool_calls": [
                {"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}},
                {"index": 1, "id": "b", "function": {"name": "g", "arguments": "{}"}},
            ],
        },
        finish_reason="tool_calls",
    )
    both["frame"]["usage"] = {"prompt_tokens": 3, "completion_tokens": 4}
    both["frame"]["invented"] = {"by": "a provider"}
    async with asking([{"steps": [both, {"raw": "data: [DONE]\n\n"}, {"end": True}]}]) as gateway:
        heard = await gateway.hear()
    assert heard.kinds == ["started", "reasoning", "content", "tool_call", "tool_call", "usage", "finish"]
    assert heard.deltas[-1].finish.reason == "tool_calls"
    assert (heard.usage.input_tokens, heard.usage.output_tokens, heard.usage.model_calls) == (3, 4, 1)


@pytest.mark.parametrize(
    "empty",
    [
        {"frame": {"choices": []}},
        {"frame": {"choices": None}},
        {"frame": {}},
        {"raw": ": keep-alive\n\n"},
        {"raw": "event: ping\ndata: {}\n\n"},
        frame({"role": "assistant", "content": ""}),
        frame({"content": None, "tool_calls": None}),
        {"frame": {"choices": [{"delta": None}]}},
    ],
)
async def test_frames_without_anything_give_no_delta(asking: Asking, empty: dict[str, Any]) -> None:
    async with asking([{"steps": [empty, {"content": "x"}, empty]}]) as gateway:
        heard = await gateway.hear()
    assert heard.kinds == ["started", "content", "usage", "finish"]


async def test_a_missing_done_and_a_missing_finish_reason_are_tolerated_but_not_both(asking: Asking) -> None:
    done = {"raw": "data: [DONE]\n\n"}
    without_done = [{"content": "x"}, {"finish": "length"}, {"end": True}]
    without_finish = [{"content": "x"}, done, {"end": True}]
    async with asking([{"steps": without_done}]) as gateway:
        assert (await gateway.hear()).deltas[-1].finish.reason == "length"
    async with asking([{"steps": without_finish}]) as gateway:
        assert (await gateway.hear()).deltas[-1].finish.reason == "stop"
    async with asking([{"steps": [{"content": "x"}, {"end": True}]}]) as gateway:
        heard = await gateway.hear()
    assert heard.kinds == ["started", "content", "usage"]
    assert heard.reason == "PROVIDER_UNAVAILABLE"


async def test_the_last_usage_counts_and_has_its_price(asking: Asking) -> None:
    last = {
        "prompt_tokens": 1000,
        "completion_tokens": 100,
        "completion_tokens_details": {"reasoning_tokens": 40, "invented": 1},
        "prompt_tokens_details": {"cached_tokens": 900},
    }
    steps = [{"usage": {"prompt_tokens": 1}}, {"content": "x"}, {"usage": last}]
    models = [{"name": "sim-1", "price": {"inputPerMTok": 1.0, "outputPerMTok": 10.0}}]
    async with asking([{"steps": steps}], models=models) as gateway:
        usage = (await gateway.hear()).usage
    assert (usage.input_tokens, usage.reasoning_tokens, usage.cached_tokens) == (1000, 40, 900)
    assert usage.cost_usd == pytest.approx(0.002)
    assert not usage.estimated


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
        spent = (await gateway.hear()).usage
    assert (spent.input_tokens, spent.cached_tokens, spent.cache_write_tokens) == (1_000_000, 500_000, 200_000)
    assert spent.cost_usd == pytest.approx(dollars)


async def test_without_a_report_the_usage_is_estimated(asking: Asking) -> None:
    async with asking([{"steps": [{"content": ["a", "b"]}, {"finish": "stop"}, {"end": True}]}]) as gateway:
        usage = (await gateway.hear()).usage
    assert (usage.output_tokens, usage.estimated) == (2, True)
    assert usage.input_tokens > 0


async def test_a_connection_is_used_again_after_a_complete_answer(asking: Asking) -> None:
    async with asking() as gateway:
        for _ in range(3):
            assert (await gateway.hear()).error is None
        assert len(gateway.sim.requests) == 3
        assert not any(request.closed_by_client for request in gateway.sim.requests)


async def test_the_key_is_sent_and_the_first_that_is_set_wins(asking: Asking) -> None:
    async with asking(apiKeys=["env:UNSET_KEY", "env:SIM_KEY"]) as gateway:
        gateway.env["SIM_KEY"] = "sk-12345678"
        assert (await gateway.hear()).error is None
        assert gateway.sim.requests[0].headers["authorization"] == "Bearer sk-12345678"


async def test_models_are_listed_in_the_files_order(asking: Asking) -> None:
    async with asking() as gateway:
        reply = await gateway.llm.ListModels(llm_pb2.ListModelsRequest(), timeout=50)
    assert [model.model for model in reply.models] == ["sim-1", "idle", "bench"]
    assert reply.models[0].context_window_tokens == 1000
    assert list(reply.models[0].capabilities) == ["tools", "reasoning", "vision"]
