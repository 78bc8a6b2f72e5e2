"""What operators see of runs: spans, what is below what, how each ended, nothing of what was said; and metrics."""

import asyncio
from collections.abc import Generator

import pytest
from opentelemetry.trace.status import StatusCode
from prometheus_client import REGISTRY

from headrace.errors import Overloaded
from headrace.v1 import tools_pb2
from tests.support.orchestrator import Serve, answer, ask, call_tool, cancels, content, finish
from tests.support.orchestrator.compaction import ANSWER, SMALL, compacted_at
from tests.support.orchestrator.subagents import HELPER, PARENT, delegated, replying
from tests.support.spans import Recorded, recording
from tests.support.waiting import wait_until

EXECUTE = "headrace.v1.ToolService/Execute"


@pytest.fixture
def recorded() -> Generator[Recorded]:
    with recording() as spans:
        yield spans


async def ended(recorded: Recorded, name: str) -> None:
    await recorded.until(lambda: name in recorded.names)


async def test_the_time_to_a_runs_first_text_is_counted_once(serve: Serve) -> None:
    def count() -> float:
        return REGISTRY.get_sample_value("headrace_run_first_delta_seconds_count") or 0.0

    async with serve(content("a ") + call_tool("look"), content("b ") + answer("c")) as suite:
        before = count()
        await suite.ask()
        assert count() == before + 1


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
    helper = recorded.only("invoke_agent helper")
    assert helper.attributes is not None
    for name in ("gen_ai.conversation.id", "headrace.run.id"):
        assert helper.attributes[name] == run.attributes[name]
    assert (helper.attributes["gen_ai.agent.id"], helper.attributes["gen_ai.agent.name"]) == ("helper", "helper")
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


CHAT = "22222222-2222-4222-8222-222222222222"


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def live() -> dict[str, float]:
    return {state: value("headrace_runs", state=state) for state in ("queued", "running", "waiting")}


async def test_live_runs_are_shown_by_what_they_do(serve: Serve) -> None:
    before = value("headrace_runs_ended_total", state="completed", error="")
    async with serve([*content("a"), 1.0, *finish()], answer("b")) as suite:
        first = asyncio.create_task(suite.ask("one", chat_id=CHAT))
        async with asyncio.timeout(50):
            await wait_until(lambda: live() == {"queued": 0, "running": 1, "waiting": 0})
            second = asyncio.create_task(suite.ask("two", chat_id=CHAT))
            await wait_until(lambda: live() == {"queued": 1, "running": 1, "waiting": 0})
            await first
            await second
            await wait_until(lambda: not any(live().values()))
    assert value("headrace_runs_ended_total", state="completed", error="") == before + 2
    assert REGISTRY.get_sample_value("headrace_runs", {"state": "running"}) is None


async def test_a_run_that_failed_is_counted_by_its_error(serve: Serve) -> None:
    before = value("headrace_runs_ended_total", state="failed", error="OVERLOADED")
    async with serve([Overloaded("full")]) as suite:
        await suite.ask()
    assert value("headrace_runs_ended_total", state="failed", error="OVERLOADED") == before + 1


async def test_compactions_are_counted(serve: Serve) -> None:
    before = value("headrace_compactions_total", trigger="auto", outcome="complete")
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        await compacted_at(suite)
    # Once before the last run's turn; and perhaps once more behind it already.
    assert value("headrace_compactions_total", trigger="auto", outcome="complete") - before in (1, 2)
