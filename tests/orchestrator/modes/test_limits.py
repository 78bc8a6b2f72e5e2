"""Steps or calls that are used up end with an answer, if need be the model's last words, and readers are told."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.fold import fold_events
from headrace.v1 import agent_pb2
from tests.orchestrator.conftest import House, Open, call, content, finish
from tests.orchestrator.lifecycle.test_runs import ANSWER
from tests.support.order import Event

SPEAKING = content("It may rain.") + call("look", '{"n":1}') + finish("tool_calls")
SILENT = call("look", '{"n":2}') + finish("tool_calls")


def list_notices(events: list[Event]) -> list[tuple[str, str]]:
    return [(event["code"], event["message"]) for event in events if event["type"] == "run.notice"]


async def read_answers(it: House, run_id: str) -> list[str]:
    """The run's answer for one who attaches later, and in history."""
    async with it.client.attach(run_id) as deltas:
        attached: list[agent_pb2.AgentDelta] = [delta async for delta in deltas]
    return [fold_events(attached).answer, fold_events((await it.client.chat(it.chat_id)).events).answer]


async def test_a_model_that_calls_tools_in_its_final_turn_is_asked_once_more(house: Open) -> None:
    async with house(SILENT, SILENT, ANSWER, react={"maxSteps": 1}) as it:
        events = await it.ask()
        assert [request.tool_choice for request in it.llm.requests] == ["auto", "none", "none"]
        assert "No tool can be called" in it.llm.requests[-1].messages[-1].content[0].text
        assert await read_answers(it, it.run_ids[0]) == ["All good."] * 2
    assert events[-1]["finishReason"] == "steps"
    assert list_notices(events) == [("LIMIT_REACHED", "the model has used up its 1 turns with tools (maxSteps)")]


@pytest.mark.parametrize(
    ("changes", "reason", "limit"),
    [
        ({"react": {"maxSteps": 1}}, "steps", "maxSteps"),
        ({"budget": {"maxModelCalls": 1}}, "budget", "maxModelCalls"),
        ({"budget": {"maxToolCalls": 1}}, "budget", "maxToolCalls"),
    ],
)
async def test_the_last_words_of_a_model_that_says_nothing_more_are_the_answer(
    house: Open, changes: dict[str, Any], reason: str, limit: str
) -> None:
    async with house(SPEAKING, SILENT, **changes) as it:
        events = await it.ask()
        answers = await read_answers(it, it.run_ids[0])
    assert events[-1]["finishReason"] == reason
    assert answers == ["It may rain."] * 2
    assert [event["delta"] for event in events if event["type"] == "content.delta"] == ["It may rain."] * 2
    [(code, message)] = list_notices(events)
    assert (code, limit in message) == ("LIMIT_REACHED", True)


async def test_a_model_that_never_said_a_word_has_no_answer_and_the_error_names_the_limit(house: Open) -> None:
    async with house(SILENT, react={"maxSteps": 1}) as it:
        events = await it.ask()
    assert events[-1]["error"]["code"] == "NO_ANSWER"
    assert "(steps)" in events[-1]["error"]["message"]


@pytest.mark.parametrize("mode", [{"react": {"parallelToolCalls": True}}, {"mode": "ONESHOT", "plain": {}}])
async def test_spent_tool_calls_end_with_an_answer(house: Open, mode: dict[str, Any]) -> None:
    calls = call("look", call_id="a") + call("look", "[1]", index=1, call_id="b") + finish("tool_calls")
    async with house(calls, ANSWER, budget={"maxToolCalls": 1}, **mode) as it:
        events = await it.ask()
        assert len(it.tools.requests) == 1
    assert events[-1]["finishReason"] == "budget"
    assert [code for code, _ in list_notices(events)] == ["LIMIT_REACHED"]


async def test_one_shot_that_uses_up_its_calls_before_it_calls_a_tool_gives_its_answer(house: Open) -> None:
    required = {"mode": "ONESHOT", "plain": {}, "toolPolicy": "REQUIRE", "budget": {"maxModelCalls": 1}}
    async with house(content("No.") + finish(), ANSWER, **required) as it:
        events = await it.ask()
        assert [request.tool_choice for request in it.llm.requests] == ["required", "none"]
    assert events[-1]["finishReason"] == "budget"
    assert [code for code, _ in list_notices(events)] == ["LIMIT_REACHED"]


async def test_a_one_shot_sub_agent_without_calls_left_fails_and_its_caller_answers(house: Open) -> None:
    calling = call("call_subagent", '{"task":"help","agentKey":"oneshot"}') + finish("tool_calls")
    async with house(calling, ANSWER, subagents=["oneshot"], budget={"maxModelCalls": 1}) as it:
        events = await it.ask()
    [result] = [event for event in events if event["type"] == "tool.result"]
    assert "BUDGET_EXCEEDED" in result["result"]
    kinds = [event["type"] for event in events]
    assert kinds.index("subagent.end") < kinds.index("content.start")
    assert events[-1]["finishReason"] == "budget"
