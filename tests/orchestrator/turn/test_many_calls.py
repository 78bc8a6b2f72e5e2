"""An answer with more tool calls than are taken of one: the others are left out, and the model is told so."""

from __future__ import annotations

import pytest

from headrace.v1 import llm_pb2
from tests.support.orchestrator import Serve, assert_paired
from tests.support.orchestrator.crashes import Crashes, read_rest, restart, run_killed
from tests.support.orchestrator.runs import read_recorded
from tests.support.orchestrator.steps import Step, answer, finish
from tests.support.order import fold

ANSWER = answer("Enough.")


def ask_for(name: str, count: int) -> list[Step]:
    calls = [
        llm_pb2.LlmDelta(tool_call=llm_pb2.ToolCallDelta(index=n, id=f"c{n}", name=name, arguments=part))
        for n in range(count)
        for part in (f'{{"at":{n}', "}")
    ]
    for delta in calls[1::2]:
        delta.tool_call.name = delta.tool_call.id = ""
    return [*calls, *finish("tool_calls")]


def results_of(request: llm_pb2.ChatRequest) -> list[str]:
    return [message.content[0].text for message in request.messages if message.role == "tool"]


@pytest.mark.parametrize("name", ["look", "missing"])
async def test_calls_beyond_the_limit_are_left_out_and_the_model_is_told(serve: Serve, name: str) -> None:
    async with serve(ask_for(name, 20_000), ANSWER) as suite:
        events = await suite.ask()
        assert events[-1]["type"] == "run.complete"
        assert len(events) < 128 * 6
        assert len([event for event in events if event["type"] == "tool.result"]) == 128
        request = suite.llm.requests[-1]
        assert_paired(request)
        results = results_of(request)
        assert [at for at, text in enumerate(results) if "left out" in text] == [127]
        assert results[-1].endswith("[19872 more calls were left out: an answer may have 128]")
        assert fold(await read_recorded(suite, suite.run_ids[0])) == fold(events)
    assert len(suite.tools.requests) == (name == "look")


async def test_an_agent_has_its_own_limit(serve: Serve) -> None:
    budget = {"maxToolCallsPerAnswer": 2}
    async with serve(ask_for("look", 3), ANSWER, budget=budget, react={"parallelToolCalls": True}) as suite:
        events = await suite.ask()
        results = results_of(suite.llm.requests[-1])
    assert events[-1]["type"] == "run.complete"
    assert events[-1]["usage"]["toolCalls"] == 2
    assert results[0] == 'seen {"at":0}'
    assert results[1] == 'seen {"at":1}\n\n[1 more calls were left out: an answer may have 2]'


async def test_a_budget_that_ends_within_such_an_answer_still_ends_the_calls(serve: Serve) -> None:
    """Also where the process dies between the refusal and the end."""
    budget = {"maxToolCallsPerAnswer": 2, "maxToolCalls": 0}
    async with serve(ask_for("look", 3), ANSWER, budget=budget, react={"parallelToolCalls": True}) as suite:
        await suite.stop()
        seen = await run_killed(suite, Crashes(suite), append=4)
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
    assert rest[-1]["finishReason"] == "budget"
