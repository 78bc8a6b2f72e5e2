"""A tree of many sub-agents: one budget for all of them, and one end."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from headrace.v1 import llm_pb2
from tests.support.orchestrator import CHAT, Serve, Step, Suite, answer, call, content, results
from tests.support.orchestrator.prices import tree
from tests.support.orchestrator.subagents import CHILDREN, cancelled, delegated, first_question, texts_of
from tests.support.timing import within
from tests.support.waiting import wait_until


def spent(tokens: int, reason: str = "stop") -> list[Step]:
    usage = llm_pb2.LlmDelta(usage={"input_tokens": tokens, "output_tokens": 0, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    return [usage, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason))]


def plant(suite: Suite, *child: Step) -> None:
    """Let the run's first turn call 50 sub-agents, and each of their turns be this; without it, another look."""
    calls = [step for n in range(CHILDREN) for step in delegated(f"task {n}", index=n)]

    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        if first_question(request).startswith("task"):
            return [*child] or another_look(suite)
        return answer("that is it") if texts_of(request, "tool") else [*calls, *spent(10, "tool_calls")]

    suite.llm.reply = reply


def another_look(suite: Suite) -> list[Step]:
    """A turn that asks for one more, never for the same."""
    return [0.01, *call("look", json.dumps({"n": len(suite.llm.requests)})), *spent(1500, "tool_calls")]


async def test_50_sub_agents_never_make_more_model_calls_than_there_are(serve: Serve) -> None:
    async with serve(**tree(maxModelCalls=60)) as suite:
        plant(suite)
        events = await suite.ask()
        assert len(suite.llm.requests) == 61
    assert (events[-1]["type"], events[-1]["finishReason"]) == ("run.complete", "budget")
    assert events[-1]["usage"]["modelCalls"] == 61  # the last one is the run's own, for its answer
    told = [json.loads(text) for text, _ in results(events) if "contextId" in text]
    assert {outcome["error"] for outcome in told} == {"BUDGET_EXCEEDED"}
    assert len(told) == CHILDREN


async def test_50_sub_agents_pass_max_tokens_by_less_than_one_turn(serve: Serve) -> None:
    async with serve(**tree(maxTokens=40_000)) as suite:
        plant(suite)
        events = await suite.ask()
    assert (events[-1]["type"], events[-1]["error"]["code"]) == ("run.error", "BUDGET_EXCEEDED")
    details = events[-1]["error"]["details"]
    assert details["limit"] == "maxTokens"
    assert 40_000 <= int(details["tokens"]) < 41_500
    assert events[-1]["usage"]["inputTokens"] == int(details["tokens"])


async def test_what_others_have_reserved_is_waited_for(serve: Serve) -> None:
    async with serve(**tree(maxTokens=100_000)) as suite:
        plant(suite, 0.01, *content("found"), *spent(100))
        events = await suite.ask()
    assert events[-1]["type"] == "run.complete"
    assert [ok for _, ok in results(events)] == [True] * CHILDREN


@pytest.mark.parametrize("limit", [{"timeoutMs": 700}, {"maxTokens": 30_000}])
async def test_any_other_limit_ends_the_whole_tree(serve: Serve, limit: dict[str, int]) -> None:
    async with serve(**tree(**limit)) as suite:
        plant(suite)
        events = await suite.ask()
        async with within(1):  # the run's end is told by one service and the end of its calls by another
            await wait_until(lambda: not suite.llm.open)
        again = await suite.ask("task of my own", agent="oneshot")
    assert events[-1]["error"]["details"]["limit"] == next(iter(limit))
    assert again[0]["type"] == "request.query"


@pytest.mark.parametrize("timeout_ms", [20, 40, 60, 80])
async def test_sub_agents_that_have_only_just_begun_end_with_their_run(serve: Serve, timeout_ms: int) -> None:
    async with serve(**tree(timeoutMs=timeout_ms)) as suite:
        plant(suite)
        events = await suite.ask()  # whose order is checked
    assert events[-1]["error"]["details"]["limit"] == "timeoutMs"


async def test_a_cancelled_tree_ends_within_a_second_with_all_connections_closed(serve: Serve) -> None:
    async with serve(**tree()) as suite:
        plant(suite, *content("one ", "moment"), 3600.0)
        events = await cancelled(suite, "now", within_s=1)
        async with within(1):
            await wait_until(lambda: not suite.llm.open)
    assert events[-1]["type"] == "run.cancel"
    assert sum(event["type"] == "subagent.end" for event in events) == CHILDREN


async def test_after_step_lets_every_sub_agent_finish_its_turn(serve: Serve) -> None:
    async with serve(**tree()) as suite:
        met = asyncio.Barrier(CHILDREN + 1)
        plant(suite, met, *call("look", '{"n":1}'), *spent(10, "tool_calls"))
        events = await cancelled(suite, "after_step", within_s=60, met=met)
        assert len(suite.llm.requests) == CHILDREN + 1
    assert events[-1]["type"] == "run.cancel"
    looked = [text for text, _ in results(events) if text.startswith("seen")]
    assert len(looked) == CHILDREN
    assert [json.loads(text)["error"] for text, _ in results(events) if "contextId" in text] == ["cancelled"] * CHILDREN


async def test_the_model_is_told_what_is_left_where_the_agent_asks_for_it(serve: Serve) -> None:
    looks = call("look") + spent(1000, "tool_calls")
    limits = {"maxModelCalls": 4, "maxToolCalls": 3, "maxTokens": 5000, "maxCostUsd": 1.0}
    budget = {"tellModel": True, "unknownPrice": "MAX_TOKENS"} | limits
    started_s = asyncio.get_running_loop().time()
    async with serve(looks, answer("done"), budget=budget) as suite:
        await suite.ask()
        took_s = asyncio.get_running_loop().time() - started_s
        reminders = [texts_of(request, "user")[-1] for request in suite.llm.requests]
    whole = r"Left of the budget: 4 model calls, this one included, 3 tool calls, (\d+) s, 5000 tokens"
    left = re.search(whole, reminders[0])
    assert left is not None
    assert 119 - took_s <= int(left[1]) <= 120
    assert "Left of the budget: 3 model calls, this one included, 2 tool calls" in reminders[1]
    assert "4000 tokens, 1.0000 US dollars." in reminders[1]


async def test_what_is_left_is_in_get_run(serve: Serve) -> None:
    async with serve(**tree(maxModelCalls=60, maxTokens=10_000_000)) as suite:
        plant(suite, *content("one ", "moment"), 3600.0)
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
