"""A tree of sub-agents shares one budget of calls, tokens, time and money, reserved first, and ends together."""

import asyncio
import json
import random
import re

import pytest

from headrace.errors import Overloaded, ProviderUnavailable, StreamStalled
from headrace.v1 import common_pb2, llm_pb2, tools_pb2
from tests.support.orchestrator import CHAT, MODEL, REACT, Serve, Suite, results
from tests.support.orchestrator.prices import ANSWER_TOKENS, bill, priced_model, script_tree, spent_usd, tree
from tests.support.orchestrator.steps import BREAK, Step, ToolStep, answer, call, call_tool, content, finish
from tests.support.orchestrator.subagents import CHILDREN, delegate_task, first_question, run_and_cancel_tree, texts_of
from tests.support.timing import within
from tests.support.waiting import wait_until

SMALLEST = 256
"""No call is made if the money affords fewer output tokens than this."""


async def test_a_call_that_the_limit_does_not_allow_is_not_made(serve: Serve) -> None:
    async with serve(budget={"maxCostUsd": 0.0001}) as suite:
        suite.llm.models = [priced_model()]
        suite.llm.reply = lambda request: [*content("a long story"), *bill(request)]
        events = await suite.ask()
        assert not suite.llm.requests
    error = events[-1]["error"]
    assert error["message"] == (
        "the run's maxCostUsd of 0.0001 US dollars is too little for the next model call: "
        "0.000000 are spent, and the call might cost 0.040000"
    )
    details = {"limit": "maxCostUsd", "maxCostUsd": "0.0001", "costUsd": "0.000000", "nextCallUsd": "0.040000"}
    assert error["details"] == error["details"] | details


@pytest.mark.parametrize("seed", range(3))
async def test_50_sub_agents_at_any_prices_never_exceed_the_limit(serve: Serve, seed: int) -> None:
    chance = random.Random(seed)
    prices = {f"m{n}": chance.uniform(0, 80) for n in range(6)} | {"m": 3.0}
    limit_usd = chance.uniform(0.05, 2)
    agents = {name: REACT | {"modelConfig": MODEL | {"model": name}, "toolConfig": {}} for name in prices}
    async with serve(beside=agents, **(tree(maxCostUsd=limit_usd) | {"subagents": [*prices]})) as suite:
        suite.llm.models = [priced_model(name, price) for name, price in prices.items()]
        script_tree(suite, chance.choices([*prices], k=50), prices)
        events = await suite.ask()
        last = suite.llm.requests[-1]
    assert spent_usd(events) <= limit_usd + 1e-9
    if events[-1]["type"] == "run.error":
        assert events[-1]["error"]["details"]["limit"] == "maxCostUsd"
        assert limit_usd - spent_usd(events) < SMALLEST * max(prices.values()) / 1e6
    else:
        assert texts_of(last, "tool")


async def test_calls_whose_reservations_fit_together_run_in_parallel(serve: Serve) -> None:
    meeting = asyncio.Barrier(8)
    async with serve(**tree(maxCostUsd=1.0)) as suite:
        suite.llm.models = [priced_model()]
        script_tree(suite, ["react"] * 8, {"m": 10.0})
        reply = suite.llm.reply
        assert reply is not None
        suite.llm.reply = lambda request: [
            *([meeting] if first_question(request).startswith("task") else []),
            *reply(request),
        ]
        events = await suite.ask()
    assert events[-1]["type"] == "run.complete"
    assert spent_usd(events) == pytest.approx(8 * 0.04)
    assert len({event["subagentId"] for event in events if event["type"] == "subagent.start"}) == 8


@pytest.mark.parametrize(
    ("max_tokens", "limit_usd", "sent"), [(None, 0.01, 1000), (2000, 0.01, 1000), (2000, 1.0, 2000), (None, 9.0, 4000)]
)
async def test_an_answer_is_as_long_as_the_money_affords(
    serve: Serve, max_tokens: int | None, limit_usd: float, sent: int
) -> None:
    model = MODEL | ({"max_tokens": max_tokens} if max_tokens else {})
    async with serve(budget={"maxCostUsd": limit_usd}, modelConfig=model) as suite:
        suite.llm.models = [priced_model()]
        suite.llm.reply = lambda request: [*content("a long story"), *bill(request)]
        events = await suite.ask()
        assert [request.max_tokens for request in suite.llm.requests] == [sent]
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


async def test_a_model_with_a_large_output_limit_gets_at_most_half_of_the_money(serve: Serve) -> None:
    async with serve(budget={"maxCostUsd": 1.0}) as suite:
        suite.llm.models = [priced_model(output_tokens_max=128_000)]
        suite.llm.reply = lambda request: [*content("a story"), *bill(request)]
        await suite.ask()
        assert [request.max_tokens for request in suite.llm.requests] == [50_000]


async def test_input_is_reserved_at_its_highest_price(serve: Serve) -> None:
    async with serve(budget={"maxCostUsd": 0.02}) as suite:
        suite.llm.models = [priced_model(input_usd=1000.0)]
        events = await suite.ask("word " * 100)
        assert not suite.llm.requests
    assert events[-1]["error"]["details"]["limit"] == "maxCostUsd"


async def test_reservations_grow_after_a_call_billed_above_its_reservation(serve: Serve) -> None:
    """The provider bills three times its prices, so later calls reserve three times as much."""
    looks = iter(range(100))
    async with serve(budget={"maxCostUsd": 0.2, "maxModelCalls": 100, "maxToolCalls": 100}) as suite:
        suite.llm.models = [priced_model()]
        suite.llm.reply = lambda request: [
            *call("look", json.dumps({"n": next(looks)})),
            *bill(request, 30.0)[:-1],
            *finish("tool_calls")[1:],
        ]
        events = await suite.ask()
    assert events[-1]["error"]["details"]["limit"] == "maxCostUsd"
    assert spent_usd(events) <= 0.2


async def test_without_a_price_a_run_is_refused_or_counted_in_tokens(serve: Serve) -> None:
    for models in ([], [llm_pb2.ModelInfo(model="m", input_usd_per_mtok=1.0, output_usd_per_mtok=1.0)]):
        async with serve(answer("hello"), budget={"maxCostUsd": 1.0}) as suite:
            suite.llm.models = models
            events = await suite.ask()
            assert not suite.llm.requests
        assert events[-1]["error"]["code"] == "PRICE_UNKNOWN"
        assert "'scripted/m'" in events[-1]["error"]["message"]
    looks = call_tool("look")
    budget = {"maxCostUsd": 1.0, "unknownPrice": "MAX_TOKENS"}
    async with serve(looks, answer("done"), budget=budget | {"maxTokens": 100}) as suite:
        assert (await suite.ask())[-1]["type"] == "run.complete"
    async with serve(looks, answer("done"), budget=budget | {"maxTokens": 10}) as suite:
        assert (await suite.ask())[-1]["error"]["details"]["limit"] == "maxTokens"


async def test_a_gateway_that_was_away_is_asked_for_the_price_again(serve: Serve) -> None:
    async with serve(answer("hello"), budget={"maxCostUsd": 1.0}) as suite:
        suite.llm.models = ProviderUnavailable("restarting")
        events = await suite.ask()
        assert (events[-1]["error"]["code"], suite.llm.requests) == ("PROVIDER_UNAVAILABLE", [])
        suite.llm.models = [priced_model()]
        assert (await suite.ask())[-1]["type"] == "run.complete"


async def test_cancelled_calls_are_charged_an_estimate(serve: Serve) -> None:
    async with serve(**tree(maxCostUsd=10.0)) as suite:
        suite.llm.models = [priced_model(input_usd=2.0)]
        script_tree(suite, ["react"] * 50, {"m": 10.0})
        reply = suite.llm.reply
        assert reply is not None
        suite.llm.reply = lambda request: (
            [*content("one moment"), 3600.0] if first_question(request).startswith("task") else reply(request)
        )
        events = await run_and_cancel_tree(suite, "now", within_s=5)
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
async def test_failed_calls_without_usage_are_charged_if_the_provider_worked(
    serve: Serve, steps: list[Step], is_charged: bool
) -> None:
    async with serve(steps, budget={"maxCostUsd": 1.0}) as suite:
        suite.llm.models = [priced_model(input_usd=2.0)]
        events = await suite.ask()
    assert events[-1]["type"] == "run.error"
    assert (spent_usd(events) > 0) is is_charged


async def test_tools_that_ask_a_model_get_the_remaining_money(serve: Serve) -> None:
    usage = common_pb2.Usage(model_calls=2, input_tokens=100, output_tokens=50, cost_usd=0.3)
    outcome = tools_pb2.ToolOutcome(ok=True, result="found")
    searched: list[ToolStep] = [tools_pb2.ToolDelta(usage=usage), tools_pb2.ToolDelta(result=outcome)]
    async with serve(
        call_tool("deep_search"),
        call_tool("deep_search", call_id="call_2"),
        answer("done"),
        budget={"maxCostUsd": 1.0},
        toolConfig={"backends": ["deep_search"]},
    ) as suite:
        suite.llm.models = [priced_model(input_usd=2.0)]
        suite.tools.tools.append(tools_pb2.Tool(name="deep_search", parameters="{}", kind="backend", asks_model=True))
        suite.tools.plays["deep_search"] = [searched]
        events = await suite.ask()
        first, second = (request.budget for request in suite.tools.requests)
        assert suite.tools.requests[0].model.max_tokens == ANSWER_TOKENS
    assert (first.cost_usd, first.input_usd_per_mtok, first.output_usd_per_mtok) == (1.0, 2.0, 10.0)
    assert second.cost_usd == pytest.approx(0.7)
    assert spent_usd(events) == pytest.approx(0.6)
    assert [ok for _, ok in results(events)] == [True, True]


@pytest.mark.parametrize(("limit_usd", "asides"), [(0.0432, 0), (0.1, 1)])
async def test_model_calls_next_to_the_turns_share_the_money(serve: Serve, limit_usd: float, asides: int) -> None:
    memory = {"recap": {"enabled": True, "insights": "llm"}}
    async with serve(budget={"maxCostUsd": limit_usd}, memory=memory, react={"maxSteps": 14}) as suite:
        suite.llm.models, suite.tools.result_chars = [priced_model(output_tokens_max=600)], 900

        def reply(request: llm_pb2.ChatRequest) -> list[Step]:
            count = len(texts_of(request, "tool"))
            if count == 7:
                return answer("done")
            look = call("look", f'{{"at":{count}}}', call_id=f"call_{count}")
            return [*look, *bill(request)[:-1], *finish("tool_calls")[1:]]

        suite.llm.reply = reply
        suite.llm.aside["insight"] = answer("1. seen")
        events = await suite.ask()
        insights = [request for request in suite.llm.aside_requests if request.stage == "insight"]
        assert [request.max_tokens for request in insights] == [600] * asides
    assert (events[-1]["type"] == "run.complete") is bool(asides)


def usage_and_finish(tokens: int, reason: str = "stop") -> list[Step]:
    usage = llm_pb2.LlmDelta(usage={"input_tokens": tokens, "output_tokens": 0, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    return [usage, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason))]


def plant_children(suite: Suite, *child: Step) -> None:
    """Let the run's first turn call 50 sub-agents, each of whose turns is `child`, or without it another look."""
    calls = [step for n in range(CHILDREN) for step in delegate_task(f"task {n}", index=n)]

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if first_question(request).startswith("task"):
            return [*child] or another_look(suite)
        return answer("that is it") if texts_of(request, "tool") else [*calls, *usage_and_finish(10, "tool_calls")]

    suite.llm.reply = reply


def another_look(suite: Suite) -> list[Step]:
    """Return a turn with one more call, each with other arguments."""
    return [0.01, *call("look", json.dumps({"n": len(suite.llm.requests)})), *usage_and_finish(1500, "tool_calls")]


async def test_50_sub_agents_never_exceed_the_limit_of_model_calls(serve: Serve) -> None:
    async with serve(**tree(maxModelCalls=60)) as suite:
        plant_children(suite)
        events = await suite.ask()
        assert len(suite.llm.requests) == 61
    assert (events[-1]["type"], events[-1]["finishReason"]) == ("run.complete", "budget")
    assert events[-1]["usage"]["modelCalls"] == 61  # The last call is the run's own, for its answer.
    child_results = [json.loads(text) for text, _ in results(events) if "contextId" in text]
    assert {outcome["error"] for outcome in child_results} == {"BUDGET_EXCEEDED"}
    assert len(child_results) == CHILDREN


async def test_50_sub_agents_exceed_max_tokens_by_less_than_one_turn(serve: Serve) -> None:
    async with serve(**tree(maxTokens=40_000)) as suite:
        plant_children(suite)
        events = await suite.ask()
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("run.error", "BUDGET_EXCEEDED")
    details = events[-1]["error"]["details"]
    assert details["limit"] == "maxTokens"
    assert 40_000 <= int(details["tokens"]) < 41_500
    assert events[-1]["usage"]["inputTokens"] == int(details["tokens"])


async def test_a_call_waits_while_others_hold_reservations(serve: Serve) -> None:
    async with serve(**tree(maxTokens=100_000)) as suite:
        plant_children(suite, 0.01, *content("found"), *usage_and_finish(100))
        events = await suite.ask()
    assert events[-1]["type"] == "run.complete"
    assert [ok for _, ok in results(events)] == [True] * CHILDREN


@pytest.mark.parametrize("limit", [{"timeoutMs": 700}, {"maxTokens": 30_000}])
async def test_any_other_limit_ends_the_whole_tree(serve: Serve, limit: dict[str, int]) -> None:
    async with serve(**tree(**limit)) as suite:
        plant_children(suite)
        events = await suite.ask()
        async with within(1):  # One service ends the run, another one its calls.
            await wait_until(lambda: not suite.llm.open)
        next_run = await suite.ask("task of my own", agent="oneshot")
    assert events[-1]["error"]["details"]["limit"] == next(iter(limit))
    assert next_run[0]["type"] == "request.query"


@pytest.mark.parametrize("timeout_ms", [20, 40, 60, 80])
async def test_sub_agents_that_have_just_started_end_with_their_run(serve: Serve, timeout_ms: int) -> None:
    async with serve(**tree(timeoutMs=timeout_ms)) as suite:
        plant_children(suite)
        events = await suite.ask()  # `Suite.ask` checks their order.
    assert events[-1]["error"]["details"]["limit"] == "timeoutMs"


async def test_a_cancelled_tree_ends_within_a_second_with_all_connections_closed(serve: Serve) -> None:
    async with serve(**tree()) as suite:
        plant_children(suite, *content("one ", "moment"), 3600.0)
        events = await run_and_cancel_tree(suite, "now", within_s=1)
        async with within(1):
            await wait_until(lambda: not suite.llm.open)
    assert events[-1]["type"] == "run.cancel"
    assert sum(event["type"] == "subagent.end" for event in events) == CHILDREN


async def test_a_cancel_after_step_lets_every_sub_agent_finish_its_turn(serve: Serve) -> None:
    async with serve(**tree()) as suite:
        met = asyncio.Barrier(CHILDREN + 1)
        plant_children(suite, met, *call("look", '{"n":1}'), *usage_and_finish(10, "tool_calls"))
        events = await run_and_cancel_tree(suite, "after_step", within_s=60, met=met)
        assert len(suite.llm.requests) == CHILDREN + 1
    assert events[-1]["type"] == "run.cancel"
    look_results = [text for text, _ in results(events) if text.startswith("seen")]
    assert len(look_results) == CHILDREN
    assert [json.loads(text)["error"] for text, _ in results(events) if "contextId" in text] == ["cancelled"] * CHILDREN


async def test_with_tell_model_the_requests_say_what_is_left_of_the_budget(serve: Serve) -> None:
    looks = call("look") + usage_and_finish(1000, "tool_calls")
    limits = {"maxModelCalls": 4, "maxToolCalls": 3, "maxTokens": 5000, "maxCostUsd": 1.0}
    budget = {"tellModel": True, "unknownPrice": "MAX_TOKENS"} | limits
    started_s = asyncio.get_running_loop().time()
    async with serve(looks, answer("done"), budget=budget) as suite:
        await suite.ask()
        took_s = asyncio.get_running_loop().time() - started_s
        reminders = [request.messages[-1].content[-1].text for request in suite.llm.requests]
    pattern = r"Left of the budget: 4 model calls, this one included, 3 tool calls, (\d+) s, 5000 tokens"
    match = re.search(pattern, reminders[0])
    assert match is not None
    assert 119 - took_s <= int(match[1]) <= 120
    assert "Left of the budget: 3 model calls, this one included, 2 tool calls" in reminders[1]
    assert "4000 tokens, 1.0000 US dollars." in reminders[1]


async def test_get_run_returns_what_is_left_of_the_budget(serve: Serve) -> None:
    async with serve(**tree(maxModelCalls=60, maxTokens=10_000_000)) as suite:
        plant_children(suite, *content("one ", "moment"), 3600.0)
        run_id = ""
        async with suite.client.ask("hello", agent_key="react", chat_id=CHAT) as deltas:
            async for delta in deltas:
                run_id = run_id or delta.run_start.run_id
                if suite.llm.open >= CHILDREN:
                    break
            run = await suite.client.run(run_id)
            assert run.budget_left.model_calls == 60 - 51
            assert run.budget_left.tool_calls == 1000 - CHILDREN
            assert run.budget_left.tokens == 10_000_000 - 10
            await suite.client.cancel(run.run_id)
