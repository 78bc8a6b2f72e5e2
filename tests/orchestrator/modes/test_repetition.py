"""A model that goes round in circles is told so, and then asked for its answer, with finishReason stuck."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from itertools import count
from typing import Any

import pytest

from headrace.v1 import llm_pb2, tools_pb2
from tests.orchestrator.cluster.test_crashes import it_run
from tests.orchestrator.conftest import Open, Step, as_json, call, content, finish
from tests.orchestrator.lifecycle.test_runs import ANSWER, results
from tests.orchestrator.modes.test_limits import list_notices
from tests.orchestrator.owners import Crashes, again
from tests.orchestrator.plans import add, agent, asked, model, outline
from tests.support.order import Event

MANY_STEPS: dict[str, Any] = {"react": {"maxSteps": 15}, "budget": {"maxModelCalls": 40}}
WORDS = "Let me look at the weather of Paris in the one place that I know, and then tell what it says."


def look(number: object, *said: str) -> list[Step]:
    return [*content(*said), *call("look", f'{{"n":{number}}}'), *finish("tool_calls")]


def list_warned(events: list[Event]) -> list[bool]:
    return ["[warning: " in text for text, _ in results(events)]


async def fail(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
    yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result="no such file"))


async def test_two_calls_in_turn_are_noticed(house: Open) -> None:
    turns = [look(1), look(2), look(1), look(2), look(1), ANSWER]
    async with house(*turns, **MANY_STEPS) as it:
        events = await it.ask()
        assert len(it.tools.requests) == 4
        assert it.llm.requests[-1].tool_choice == "none"
    assert list_warned(events) == [False, False, False, True, False]
    assert '"executed":false' in results(events)[-1][0]
    assert events[-1]["finishReason"] == "stuck"
    [(code, message)] = list_notices(events)
    assert (code, "the same two calls came 2 times in turn" in message) == ("MODEL_STUCK", True)


async def test_two_calls_in_turn_that_bring_something_new_may_go_on(house: Open) -> None:
    number = count()

    async def poll(request: tools_pb2.ExecuteRequest) -> AsyncGenerator[tools_pb2.ToolDelta]:
        yield tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=True, result=f"{next(number)} % done"))

    async with house(*[look(1), look(2)] * 5, ANSWER, **MANY_STEPS) as it:
        it.tools.execute = poll
        events = await it.ask()
    assert not any(list_warned(events))
    assert events[-1]["finishReason"] == "stop"


async def test_the_same_error_whatever_the_arguments_is_noticed(house: Open) -> None:
    async with house(*(look(number) for number in range(4)), ANSWER, **MANY_STEPS) as it:
        it.tools.execute = fail
        events = await it.ask()
        assert len(it.tools.requests) == 4
        assert [request.tool_choice for request in it.llm.requests] == [*["auto"] * 4, "none"]
    assert list_warned(events) == [False, False, True, False]
    assert events[-1]["finishReason"] == "stuck"
    assert "the same error came 3 times in a row" in list_notices(events)[0][1]


async def test_the_same_words_again_and_again_are_noticed_and_short_remarks_are_not(house: Open) -> None:
    async with house(*(look(number, WORDS) for number in range(4)), ANSWER, **MANY_STEPS) as it:
        events = await it.ask()
    assert list_warned(events) == [False, False, True, False]
    assert events[-1]["finishReason"] == "stuck"
    assert "the same words came 3 times in a row" in list_notices(events)[0][1]


async def test_short_remarks_may_come_again_and_again(house: Open) -> None:
    async with house(*(look(number, "Let me look.") for number in range(6)), ANSWER, **MANY_STEPS) as it:
        events = await it.ask()
    assert (list_notices(events), events[-1]["finishReason"]) == ([], "stop")


async def test_an_agent_says_how_often(house: Open) -> None:
    budget = {"maxRepeats": 5, "maxModelCalls": 40}
    async with house(*[look(1)] * 6, ANSWER, react={"maxSteps": 15}, budget=budget) as it:
        events = await it.ask()
        assert len(it.tools.requests) == 5
    assert list_warned(events) == [False] * 4 + [True, False]
    assert events[-1]["finishReason"] == "stuck"


async def test_a_task_that_goes_round_in_circles_is_asked_how_it_ended(house: Open) -> None:
    async with house(**agent()) as it:
        events = await asked(it, model(add("look"), work=lambda request: look(1)))
        assert len(it.tools.requests) == 3
    assert outline(events) == ["start look", "complete look", "run.complete"]
    [notice] = [event for event in events if event["type"] == "run.notice"]
    assert (notice["code"], "taskId" in notice) == ("MODEL_STUCK", True)
    assert events[-1]["finishReason"] == "stop"


@pytest.mark.parametrize("kill_at", [3, 5, 7, 9, 10])
async def test_a_run_that_is_taken_over_comes_to_the_same_end(house: Open, kill_at: int) -> None:
    def reply(request: llm_pb2.ChatRequest) -> list[Step]:
        done = sum(message.role == "tool" for message in request.messages)
        return ANSWER if request.tool_choice == "none" else look(done)

    async with house(**MANY_STEPS) as it:
        it.tools.execute, it.llm.reply = fail, reply
        await it.stop()
        crashes = Crashes(it)
        crashes.kill_at(kill_at)
        async with again(it) as client, client.ask("hello", agent_key="react") as deltas:
            seen = [as_json(delta) async for delta in deltas]
        crashes.kill_at(-1)
        async with again(it) as client, client.attach(it_run(seen), seen[-1]["seq"]) as deltas:
            rest = [as_json(delta) async for delta in deltas]
    assert rest[-1]["finishReason"] == "stuck"
