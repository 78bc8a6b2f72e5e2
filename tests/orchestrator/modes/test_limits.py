"""Steps or calls that are used up end with an answer, if need be the model's last words, and readers are told."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.fold import fold_events
from headrace.v1 import agent_pb2
from tests.support.orchestrator import Serve, Suite, list_notices
from tests.support.orchestrator.steps import ANSWER, answer, call, call_tool, content, finish

SPEAKING = content("It may rain.") + call("look", '{"n":1}') + finish("tool_calls")
SILENT = call_tool("look", '{"n":2}')


async def read_answers(suite: Suite, run_id: str) -> list[str]:
    """The run's answer for one who attaches later, and in history."""
    async with suite.client.attach(run_id) as deltas:
        attached: list[agent_pb2.AgentDelta] = [delta async for delta in deltas]
    return [fold_events(attached).answer, fold_events((await suite.client.chat(suite.chat_id)).events).answer]


async def test_a_model_that_calls_tools_in_its_final_turn_is_asked_once_more(serve: Serve) -> None:
    async with serve(SILENT, SILENT, ANSWER, react={"maxSteps": 1}) as suite:
        events = await suite.ask()
        assert [request.tool_choice for request in suite.llm.requests] == ["auto", "none", "none"]
        assert "No tool can be called" in suite.llm.requests[-1].messages[-1].content[0].text
        assert await read_answers(suite, suite.run_ids[0]) == ["All good."] * 2
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
    serve: Serve, changes: dict[str, Any], reason: str, limit: str
) -> None:
    async with serve(SPEAKING, SILENT, **changes) as suite:
        events = await suite.ask()
        answers = await read_answers(suite, suite.run_ids[0])
    assert events[-1]["finishReason"] == reason
    assert answers == ["It may rain."] * 2
    assert [event["delta"] for event in events if event["type"] == "content.delta"] == ["It may rain."] * 2
    [(code, message)] = list_notices(events)
    assert (code, limit in message) == ("LIMIT_REACHED", True)


async def test_a_model_that_never_said_a_word_has_no_answer_and_the_error_names_the_limit(serve: Serve) -> None:
    async with serve(SILENT, react={"maxSteps": 1}) as suite:
        events = await suite.ask()
    assert events[-1]["error"]["code"] == "NO_ANSWER"
    assert "(steps)" in events[-1]["error"]["message"]


@pytest.mark.parametrize("mode", [{"react": {"parallelToolCalls": True}}, {"mode": "ONESHOT", "plain": {}}])
async def test_spent_tool_calls_end_with_an_answer(serve: Serve, mode: dict[str, Any]) -> None:
    calls = call("look", call_id="a") + call("look", "[1]", index=1, call_id="b") + finish("tool_calls")
    async with serve(calls, ANSWER, budget={"maxToolCalls": 1}, **mode) as suite:
        events = await suite.ask()
        assert len(suite.tools.requests) == 1
    assert events[-1]["finishReason"] == "budget"
    assert [code for code, _ in list_notices(events)] == ["LIMIT_REACHED"]


async def test_one_shot_that_uses_up_its_calls_before_it_calls_a_tool_gives_its_answer(serve: Serve) -> None:
    required = {"mode": "ONESHOT", "plain": {}, "toolPolicy": "REQUIRE", "budget": {"maxModelCalls": 1}}
    async with serve(answer("No."), ANSWER, **required) as suite:
        events = await suite.ask()
        assert [request.tool_choice for request in suite.llm.requests] == ["required", "none"]
    assert events[-1]["finishReason"] == "budget"
    assert [code for code, _ in list_notices(events)] == ["LIMIT_REACHED"]


async def test_a_one_shot_sub_agent_without_calls_left_fails_and_its_caller_answers(serve: Serve) -> None:
    calling = call_tool("call_subagent", '{"task":"help","agentKey":"oneshot"}')
    async with serve(calling, ANSWER, subagents=["oneshot"], budget={"maxModelCalls": 1}) as suite:
        events = await suite.ask()
    [result] = [event for event in events if event["type"] == "tool.result"]
    assert "BUDGET_EXCEEDED" in result["result"]
    kinds = [event["type"] for event in events]
    assert kinds.index("subagent.end") < kinds.index("content.start")
    assert events[-1]["finishReason"] == "budget"
