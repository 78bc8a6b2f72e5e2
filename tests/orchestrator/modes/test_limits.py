"""Runs that use up steps or calls, or go in circles, end with an answer and a notice for readers."""

from collections.abc import AsyncGenerator
from itertools import count
from typing import Any

import pytest

from headrace.runs.fold import fold_events
from headrace.v1 import agent_pb2, llm_pb2, tools_pb2
from tests.support.orchestrator import Serve, Suite, list_notices, only, results
from tests.support.orchestrator.crashes import Crashes, read_rest, restart, run_killed
from tests.support.orchestrator.plans import add, agent, ask_checked, model, outline
from tests.support.orchestrator.steps import ANSWER, Step, answer, call, call_tool, content, finish
from tests.support.order import Event

SPEAKING = content("It may rain.") + call("look", '{"n":1}') + finish("tool_calls")
SILENT = call_tool("look", '{"n":2}')


async def read_answers(suite: Suite, run_id: str) -> list[str]:
    """Return the run's answer as a late reader gets it, and as the chat's history has it."""
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
async def test_a_limit_reached_without_an_answer_makes_the_last_text_the_answer(
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


async def test_a_model_without_any_text_fails_with_an_error_naming_the_limit(serve: Serve) -> None:
    async with serve(SILENT, react={"maxSteps": 1}) as suite:
        events = await suite.ask()
    assert events[-1]["error"]["code"] == "NO_ANSWER"
    assert "(steps)" in events[-1]["error"]["message"]


@pytest.mark.parametrize("mode", [{"react": {"parallelToolCalls": True}}, {"mode": "ONESHOT", "plain": {}}])
async def test_using_up_the_tool_calls_ends_with_an_answer(serve: Serve, mode: dict[str, Any]) -> None:
    calls = call("look", call_id="a") + call("look", "[1]", index=1, call_id="b") + finish("tool_calls")
    async with serve(calls, ANSWER, budget={"maxToolCalls": 1}, **mode) as suite:
        events = await suite.ask()
        assert len(suite.tools.requests) == 1
    assert events[-1]["finishReason"] == "budget"
    assert [code for code, _ in list_notices(events)] == ["LIMIT_REACHED"]


async def test_a_one_shot_agent_out_of_model_calls_answers_without_its_required_tool(serve: Serve) -> None:
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
    assert "BUDGET_EXCEEDED" in only(events, "tool.result")["result"]
    kinds = [event["type"] for event in events]
    assert kinds.index("subagent.end") < kinds.index("content.start")
    assert events[-1]["finishReason"] == "budget"


MANY_STEPS: dict[str, Any] = {"react": {"maxSteps": 15}, "budget": {"maxModelCalls": 40}}
WORDS = "Let me look at the weather of Paris in the one place that I know, and then tell what it says."


def look(number: object, *texts: str) -> list[Step]:
    return [*content(*texts), *call("look", f'{{"n":{number}}}'), *finish("tool_calls")]


def list_warned(events: list[Event]) -> list[bool]:
    return ["[warning: " in text for text, _ in results(events)]


async def fail(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
    yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result="no such file"))


STUCK: dict[str, tuple[list[list[Step]], dict[str, Any], int, str]] = {
    "two calls in turn": ([look(n) for n in (1, 2, 1, 2, 1)], {}, 4, "the same two calls came 2 times in turn"),
    "one error, whatever the arguments": ([look(n) for n in range(4)], {}, 4, "the same error came 3 times in a row"),
    "the same words": ([look(n, WORDS) for n in range(4)], {}, 3, "the same words came 3 times in a row"),
    "as often as the agent says": (
        [look(1)] * 6,
        {"maxRepeats": 5},
        5,
        "the same arguments and result came 5 times in a row",
    ),
}
"""The turns with calls, changes of the budget, how many calls run, and a part of the notice."""


@pytest.mark.parametrize("case", STUCK)
async def test_a_model_going_in_circles_is_warned_and_then_must_answer(serve: Serve, case: str) -> None:
    turns, budget, runs, notice = STUCK[case]
    async with serve(*turns, ANSWER, **MANY_STEPS | {"budget": MANY_STEPS["budget"] | budget}) as suite:
        if "error" in notice:
            suite.tools.execute = fail
        events = await suite.ask()
        assert len(suite.tools.requests) == runs
        assert [request.tool_choice for request in suite.llm.requests] == [*["auto"] * len(turns), "none"]
    last_but_one = [False] * (len(turns) - 2) + [True, False]
    assert list_warned(events) == last_but_one
    assert events[-1]["finishReason"] == "stuck"
    [(code, message)] = list_notices(events)
    assert (code, notice in message) == ("MODEL_STUCK", True), message


@pytest.mark.parametrize(
    "turns", [[look(1), look(2)] * 5, [look(1)] * 10, [look(1, WORDS)] * 10], ids=["two in turn", "one", "with words"]
)
async def test_calls_that_bring_something_new_may_go_on(serve: Serve, turns: list[list[Step]]) -> None:
    """https://github.com/macanderson/stella/issues/359 (2026-07), https://github.com/QwenLM/qwen-code/pull/9492
    (2026-08)."""
    number = count()

    async def poll(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result=f"{next(number)} % done"))

    async with serve(*turns, ANSWER, **MANY_STEPS) as suite:
        suite.tools.execute = poll
        events = await suite.ask()
    assert not any(list_warned(events))
    assert events[-1]["finishReason"] == "stop"


async def test_repeated_short_remarks_are_not_circles(serve: Serve) -> None:
    async with serve(*(look(number, "Let me look.") for number in range(6)), ANSWER, **MANY_STEPS) as suite:
        events = await suite.ask()
    assert (list_notices(events), events[-1]["finishReason"]) == ([], "stop")


async def test_a_task_going_in_circles_must_report_its_result(serve: Serve) -> None:
    async with serve(**agent()) as suite:
        events = await ask_checked(suite, model(add("look"), work=lambda request: look(1)))
        assert len(suite.tools.requests) == 3
    assert outline(events) == ["start look", "complete look", "run.complete"]
    notice = only(events, "run.notice")
    assert (notice["code"], "taskId" in notice) == ("MODEL_STUCK", True)
    assert events[-1]["finishReason"] == "stop"


@pytest.mark.parametrize("kill_at", [3, 5, 7, 9, 10])
async def test_a_stuck_run_ends_as_stuck_after_a_takeover(serve: Serve, kill_at: int) -> None:
    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        results_so_far = sum(message.role == "tool" for message in request.messages)
        return ANSWER if request.tool_choice == "none" else look(results_so_far)

    async with serve(**MANY_STEPS) as suite:
        suite.tools.execute, suite.llm.reply = fail, reply
        await suite.stop()
        events_before = await run_killed(suite, Crashes(suite), append=kill_at)
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
    assert events_after[-1]["finishReason"] == "stuck"
