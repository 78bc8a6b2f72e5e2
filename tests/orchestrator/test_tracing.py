"""The spans of runs: what is below what, how each ended, and nothing of what was said."""

from __future__ import annotations

from collections.abc import Generator

import pytest
from opentelemetry.trace.status import StatusCode

from headrace.v1 import tools_pb2
from tests.support.orchestrator import Serve, ask, cancels
from tests.support.orchestrator.compaction import ANSWER, SMALL, compacted_at
from tests.support.orchestrator.steps import answer, call_tool, content, finish
from tests.support.orchestrator.subagents import HELPER, PARENT, delegated, replying
from tests.support.spans import Recorded, recording

EXECUTE = "headrace.v1.ToolService/Execute"


@pytest.fixture
def recorded() -> Generator[Recorded]:
    with recording() as spans:
        yield spans


async def ended(recorded: Recorded, name: str) -> None:
    await recorded.until(lambda: name in recorded.names)


async def test_calls_are_below_their_run_and_those_of_a_sub_agent_below_its_work(
    serve: Serve, recorded: Recorded
) -> None:
    async with serve(beside={"helper": HELPER}, **PARENT) as suite:
        replying(
            suite,
            hello=[delegated(agentKey="helper") + finish("tool_calls"), answer("done")],
            find=[call_tool("look", '{"at":"the secret"}'), answer("it is here")],
        )
        await suite.ask()
        await ended(recorded, "headrace.v1.AgentService/Query")
    assert recorded.above(recorded.only(EXECUTE)) == [
        "execute_tool look",
        "invoke_agent helper",
        "execute_tool call_subagent",
        "invoke_agent react",
        "headrace.v1.AgentService/Query",
    ]
    run, tool = recorded.only("invoke_agent react"), recorded.only("execute_tool look")
    assert run.attributes is not None
    assert tool.attributes is not None
    assert (
        run.attributes.items()
        >= {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.id": "react",
            "gen_ai.conversation.id": suite.chat_id,
            "gen_ai.usage.input_tokens": 40,
            "gen_ai.usage.output_tokens": 20,
            "headrace.run.id": suite.run_ids[0],
            "headrace.run.state": "completed",
        }.items()
    )
    assert tool.attributes.items() >= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "look"}.items()
    assert not any("secret" in span.to_json() or "find it" in span.to_json() for span in recorded.spans)


async def test_a_tool_that_fails_is_marked_and_its_run_is_not(serve: Serve, recorded: Recorded) -> None:
    async with serve(call_tool("look"), answer("sorry")) as suite:
        suite.tools.plays["look"] = [[tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result="the secret"))]]
        await suite.ask()
        await ended(recorded, "invoke_agent react")
    tool, run = recorded.only("execute_tool look"), recorded.only("invoke_agent react")
    assert tool.attributes is not None
    assert (tool.status.status_code, tool.attributes["error.type"]) == (StatusCode.ERROR, "tool_failed")
    assert run.status.status_code is StatusCode.UNSET


async def test_a_run_that_is_cancelled_has_not_failed(serve: Serve, recorded: Recorded) -> None:
    async with serve([*content("a"), 10.0]) as suite:
        await ask(suite, ("content.delta", cancels(suite)))
        await ended(recorded, "invoke_agent react")
    run = recorded.only("invoke_agent react")
    assert run.attributes is not None
    assert (run.attributes["headrace.run.state"], run.status.status_code) == ("cancelled", StatusCode.UNSET)


async def test_a_compaction_is_a_span_of_its_run_with_the_calls_that_it_makes(serve: Serve, recorded: Recorded) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        await compacted_at(suite)
        await ended(recorded, "compact_context")
    span = recorded.only("compact_context")
    assert span.attributes == {"headrace.compaction.trigger": "auto", "headrace.compaction.outcome": "complete"}
    assert recorded.above(span)[0] == "invoke_agent react"
    assert recorded.above(recorded.only("headrace.v1.MemoryService/Compact"))[0] == "compact_context"
