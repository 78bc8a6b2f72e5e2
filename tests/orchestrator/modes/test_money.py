"""A budget in money is reserved before it is spent: by a tree of sub-agents, by one call, at whatever prices."""

from __future__ import annotations

import asyncio
import json
import random
from typing import Any

import pytest

from headrace.errors import Overloaded, ProviderUnavailable, StreamStalled
from headrace.v1 import common_pb2, llm_pb2, tools_pb2
from tests.orchestrator.conftest import BREAK, MODEL, REACT, House, Open, Step, ToolStep, call, content, finish
from tests.orchestrator.lifecycle.test_runs import results
from tests.orchestrator.modes.test_subagents import asked, delegated, said, texts_of
from tests.orchestrator.modes.test_tree import cancelled
from tests.support.order import Event

ANSWER_TOKENS = 4000
"""What the scripted provider writes unless it is told to stop earlier."""

INPUT_TOKENS = 5
"""What it bills for any request: less than is counted."""

SMALLEST = 256
"""No call is made for a shorter answer."""


def priced(
    name: str = "m", output_usd: float = 10.0, *, input_usd: float = 0.0, output_tokens_max: int = ANSWER_TOKENS
) -> llm_pb2.ModelInfo:
    return llm_pb2.ModelInfo(
        provider_key="scripted",
        model=name,
        context_window_tokens=100_000,
        output_tokens_max=output_tokens_max,
        input_usd_per_mtok_max=input_usd,
        output_usd_per_mtok_max=output_usd,
    )


def bill(request: llm_pb2.ChatRequest, output_usd: float = 10.0, input_usd: float = 0.0) -> list[Step]:
    """What a provider tells that keeps to max_tokens, by its own prices."""
    output = min(request.max_tokens or ANSWER_TOKENS, ANSWER_TOKENS)
    usage = llm_pb2.LlmDelta(
        usage={  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
            "input_tokens": INPUT_TOKENS,
            "output_tokens": output,
            "cost_usd": (INPUT_TOKENS * input_usd + output * output_usd) / 1e6,
            "model_calls": 1,
        }
    )
    reason = "stop" if output == ANSWER_TOKENS else "length"
    return [usage, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason))]


def plant(it: House, children: list[str], prices: dict[str, float]) -> None:
    """Let the run's first turn, which is free, call these agents, each of which writes a dear answer."""
    calls = [step for n, key in enumerate(children) for step in delegated(f"task {n}", index=n, agentKey=key)]
    free = llm_pb2.LlmDelta(usage={"input_tokens": 10, "output_tokens": 0, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    ends = [free, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason="tool_calls"))]

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if asked(request).startswith("task"):
            return [0.01, *content("found"), *bill(request, prices[request.model])]
        return said("that is it") if texts_of(request, "tool") else [*calls, *ends]

    it.llm.reply = reply


def tree(**budget: Any) -> dict[str, Any]:
    large = {"maxModelCalls": 1000, "maxToolCalls": 1000, "timeoutMs": 60_000}
    return {"subagents": ["react"], "react": {"parallelToolCalls": True}, "budget": large | budget}


def spent_usd(events: list[Event]) -> float:
    return events[-1]["usage"].get("costUsd", 0.0)


async def test_eight_parallel_sub_agents_stay_within_the_limit(house: Open) -> None:
    async with house(**tree(maxCostUsd=0.05)) as it:
        it.llm.models = [priced(output_usd=12.5)]
        plant(it, ["react"] * 8, {"m": 12.5})
        events = await it.ask()
    error = events[-1]["error"]
    assert (error["code"], error["details"]["limit"]) == ("BUDGET_EXCEEDED", "maxCostUsd")
    assert spent_usd(events) == pytest.approx(0.05)


async def test_one_call_that_the_limit_does_not_allow_is_not_made(house: Open) -> None:
    async with house(budget={"maxCostUsd": 0.0001}) as it:
        it.llm.models = [priced()]
        it.llm.reply = lambda request: [*content("a long story"), *bill(request)]
        events = await it.ask()
        assert not it.llm.requests
    error = events[-1]["error"]
    assert error["message"] == (
        "the run's maxCostUsd of 0.0001 US dollars is too little for the next model call: "
        "0.000000 are spent, and the call might cost 0.040000"
    )
    details = {"limit": "maxCostUsd", "maxCostUsd": "0.0001", "costUsd": "0.000000", "nextCallUsd": "0.040000"}
    assert error["details"] == error["details"] | details


@pytest.mark.parametrize("seed", range(3))
async def test_50_sub_agents_of_any_prices_never_pass_the_limit(house: Open, seed: int, tmp_path: Any) -> None:
    chance = random.Random(seed)
    prices = {f"m{n}": chance.uniform(0, 80) for n in range(6)} | {"m": 3.0}
    limit_usd = chance.uniform(0.05, 2)
    (tmp_path / "agents").mkdir()
    for name in prices:
        agent = REACT | {"key": name, "modelConfig": MODEL | {"model": name}, "toolConfig": {}}
        (tmp_path / "agents" / f"{name}.json").write_text(json.dumps(agent))
    async with house(**(tree(maxCostUsd=limit_usd) | {"subagents": [*prices]})) as it:
        it.llm.models = [priced(name, price) for name, price in prices.items()]
        plant(it, chance.choices([*prices], k=50), prices)
        events = await it.ask()
        last = it.llm.requests[-1]
    assert spent_usd(events) <= limit_usd + 1e-9
    if events[-1]["type"] == "run.error":
        assert limit_usd - spent_usd(events) < SMALLEST * max(prices.values()) / 1e6
    else:
        assert texts_of(last, "tool")


async def test_calls_that_fit_beside_each_other_are_made_beside_each_other(house: Open) -> None:
    meeting = asyncio.Barrier(8)
    async with house(**tree(maxCostUsd=1.0)) as it:
        it.llm.models = [priced()]
        plant(it, ["react"] * 8, {"m": 10.0})
        reply = it.llm.reply
        assert reply is not None
        it.llm.reply = lambda request: [*([meeting] if asked(request).startswith("task") else []), *reply(request)]
        events = await it.ask()
    assert events[-1]["type"] == "run.complete"
    assert spent_usd(events) == pytest.approx(8 * 0.04)


@pytest.mark.parametrize(
    ("max_tokens", "limit_usd", "sent"), [(None, 0.01, 1000), (2000, 0.01, 1000), (2000, 1.0, 2000), (None, 9.0, 4000)]
)
async def test_an_answer_is_as_long_as_the_money_affords(
    house: Open, max_tokens: int | None, limit_usd: float, sent: int
) -> None:
    model = MODEL | ({"max_tokens": max_tokens} if max_tokens else {})
    async with house(budget={"maxCostUsd": limit_usd}, modelConfig=model) as it:
        it.llm.models = [priced()]
        it.llm.reply = lambda request: [*content("a long story"), *bill(request)]
        events = await it.ask()
        assert [request.max_tokens for request in it.llm.requests] == [sent]
    notices = [event["message"] for event in events if event["type"] == "run.notice"]
    if limit_usd == 0.01:
        assert events[-1]["finishReason"] == "length"
        cost = 0.02 if max_tokens else 0.04
        assert notices == [
            "the answer was cut, as the run's maxCostUsd of 0.01 US dollars leaves no more: "
            f"0.010000 are spent, and the whole answer might have cost {cost:.6f}"
        ]
    else:
        assert not notices


async def test_of_a_model_that_writes_much_half_of_the_money_is_left(house: Open) -> None:
    async with house(budget={"maxCostUsd": 1.0}) as it:
        it.llm.models = [priced(output_tokens_max=128_000)]
        it.llm.reply = lambda request: [*content("a story"), *bill(request)]
        await it.ask()
        assert [request.max_tokens for request in it.llm.requests] == [50_000]


async def test_input_counts_at_its_dearest_price(house: Open) -> None:
    async with house(budget={"maxCostUsd": 0.02}) as it:
        it.llm.models = [priced(input_usd=1000.0)]
        events = await it.ask("word " * 100)
        assert not it.llm.requests
    assert events[-1]["error"]["details"]["limit"] == "maxCostUsd"


async def test_a_call_dearer_than_its_worst_case_passes_the_limit_once(house: Open) -> None:
    """The provider bills three times its prices: what follows is reserved three times as large."""
    looks = iter(range(100))
    async with house(budget={"maxCostUsd": 0.2, "maxModelCalls": 100, "maxToolCalls": 100}) as it:
        it.llm.models = [priced()]
        it.llm.reply = lambda request: [
            *call("look", json.dumps({"n": next(looks)})),
            *bill(request, 30.0)[:-1],
            *finish("tool_calls")[1:],
        ]
        events = await it.ask()
    assert events[-1]["error"]["details"]["limit"] == "maxCostUsd"
    assert spent_usd(events) <= 0.2


async def test_without_a_price_the_run_is_refused_or_counted_in_tokens_as_the_agent_says(house: Open) -> None:
    for models in ([], [llm_pb2.ModelInfo(model="m", input_usd_per_mtok=1.0, output_usd_per_mtok=1.0)]):
        async with house(said("hello"), budget={"maxCostUsd": 1.0}) as it:
            it.llm.models = models
            events = await it.ask()
            assert not it.llm.requests
        assert events[-1]["error"]["code"] == "PRICE_UNKNOWN"
        assert "'scripted/m'" in events[-1]["error"]["message"]
    looks = call("look") + finish("tool_calls")
    budget = {"maxCostUsd": 1.0, "unknownPrice": "MAX_TOKENS"}
    async with house(looks, said("done"), budget=budget | {"maxTokens": 100}) as it:
        assert (await it.ask())[-1]["type"] == "run.complete"
    async with house(looks, said("done"), budget=budget | {"maxTokens": 10}) as it:
        assert (await it.ask())[-1]["error"]["details"]["limit"] == "maxTokens"


async def test_a_gateway_that_was_away_is_asked_for_the_price_again(house: Open) -> None:
    async with house(said("hello"), budget={"maxCostUsd": 1.0}) as it:
        it.llm.models = ProviderUnavailable("restarting")
        events = await it.ask()
        assert (events[-1]["error"]["code"], it.llm.requests) == ("PROVIDER_UNAVAILABLE", [])
        it.llm.models = [priced()]
        assert (await it.ask())[-1]["type"] == "run.complete"


async def test_cancelled_calls_are_charged_by_estimate(house: Open) -> None:
    async with house(**tree(maxCostUsd=10.0)) as it:
        it.llm.models = [priced(input_usd=2.0)]
        plant(it, ["react"] * 50, {"m": 10.0})
        reply = it.llm.reply
        assert reply is not None
        it.llm.reply = lambda request: (
            [*content("one moment"), 3600.0] if asked(request).startswith("task") else reply(request)
        )
        events = await cancelled(it, "now", within_s=5)
    usage = events[-1]["usage"]
    assert usage["estimated"]
    assert usage["outputTokens"] == 50 * 4
    assert usage["costUsd"] == pytest.approx(((usage["inputTokens"] - 10) * 2 + usage["outputTokens"] * 10) / 1e6)


@pytest.mark.parametrize(
    ("steps", "is_charged"),
    [
        ([StreamStalled("silent")], True),
        ([*content("Hel"), BREAK], True),
        ([Overloaded("the provider is busy")], False),
    ],
)
async def test_calls_that_fail_untold_are_charged_where_a_provider_worked(
    house: Open, steps: list[Step], is_charged: bool
) -> None:
    async with house(steps, budget={"maxCostUsd": 1.0}) as it:
        it.llm.models = [priced(input_usd=2.0)]
        events = await it.ask()
    assert events[-1]["type"] == "run.error"
    assert (spent_usd(events) > 0) is is_charged


async def test_tools_that_ask_a_model_have_the_money_that_is_left(house: Open) -> None:
    usage = common_pb2.Usage(model_calls=2, input_tokens=100, output_tokens=50, cost_usd=0.3)
    outcome = tools_pb2.ToolOutcome(ok=True, result="found")
    searched: list[ToolStep] = [tools_pb2.ToolDelta(usage=usage), tools_pb2.ToolDelta(result=outcome)]
    async with house(
        call("deep_search") + finish("tool_calls"),
        call("deep_search", call_id="call_2") + finish("tool_calls"),
        said("done"),
        budget={"maxCostUsd": 1.0},
        toolConfig={"backends": ["deep_search"]},
    ) as it:
        it.llm.models = [priced(input_usd=2.0)]
        it.tools.tools.append(tools_pb2.Tool(name="deep_search", parameters="{}", kind="backend", asks_model=True))
        it.tools.plays["deep_search"] = [searched]
        events = await it.ask()
        first, second = (request.budget for request in it.tools.requests)
        assert it.tools.requests[0].model.max_tokens == ANSWER_TOKENS
    assert (first.cost_usd, first.input_usd_per_mtok, first.output_usd_per_mtok) == (1.0, 2.0, 10.0)
    assert second.cost_usd == pytest.approx(0.7)
    assert spent_usd(events) == pytest.approx(0.6)
    assert [ok for _, ok in results(events)] == [True, True]


@pytest.mark.parametrize(("limit_usd", "asides"), [(0.0072, 0), (0.1, 1)])
async def test_what_is_asked_beside_the_turns_shares_the_money(house: Open, limit_usd: float, asides: int) -> None:
    memory = {"recap": {"enabled": True, "insights": "llm"}}
    async with house(budget={"maxCostUsd": limit_usd}, memory=memory) as it:
        it.llm.models = [priced(output_tokens_max=600)]
        it.llm.reply = lambda request: (
            said("done")
            if texts_of(request, "tool")
            else [*call("look"), *bill(request)[:-1], *finish("tool_calls")[1:]]
        )
        it.llm.aside["insight"] = [*content("1. seen"), *finish()]
        events = await it.ask()
        assert [request.max_tokens for request in it.llm.aside_requests if request.stage == "insight"] == [600] * asides
    assert (events[-1]["type"] == "run.complete") is bool(asides)
