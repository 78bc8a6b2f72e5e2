"""Telemetry of runs: spans, their parents and outcomes, without any content; and metrics."""

import asyncio
from collections.abc import Generator

import pytest
from opentelemetry.trace.status import StatusCode
from prometheus_client import REGISTRY

from headrace.errors import Overloaded
from headrace.v1 import tools_pb2
from tests.support.orchestrator import Serve, answer, ask, call_tool, cancels, content, finish
from tests.support.orchestrator.compaction import ANSWER, SMALL, ask_until_compacted
from tests.support.orchestrator.subagents import HELPER, PARENT, delegate_task, script_replies
from tests.support.spans import Recorded, recording
from tests.support.waiting import wait_until

EXECUTE = "headrace.v1.ToolService/Execute"


@pytest.fixture
def recorded() -> Generator[Recorded]:
    with recording() as spans:
        yield spans


async def wait_for_span(recorded: Recorded, name: str) -> None:
    await recorded.until(lambda: name in recorded.names)


async def test_the_time_to_a_runs_first_text_is_counted_once(serve: Serve) -> None:
    def count() -> float:
        return REGISTRY.get_sample_value("headrace_run_first_delta_seconds_count") or 0.0

    async with serve(content("a ") + call_tool("look"), content("b ") + answer("c")) as suite:
        before = count()
        await suite.ask()
        assert count() == before + 1


async def test_spans_of_calls_are_children_of_their_run_or_sub_agent(serve: Serve, recorded: Recorded) -> None:
    async with serve(beside={"helper": HELPER}, **PARENT) as suite:
        script_replies(
            suite,
            hello=[delegate_task(agentKey="helper") + finish("tool_calls"), answer("done")],
            find=[call_tool("look", '{"at":"the secret"}'), answer("it is here")],
        )
        await suite.ask()
        await wait_for_span(recorded, "headrace.v1.AgentService/Query")
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


async def test_a_failed_tool_marks_its_span_but_not_its_runs(serve: Serve, recorded: Recorded) -> None:
    async with serve(call_tool("look"), answer("sorry")) as suite:
        suite.tools.plays["look"] = [[tools_pb2.ToolDelta(result=tools_pb2.ToolOutcome(ok=False, result="the secret"))]]
        await suite.ask()
        await wait_for_span(recorded, "invoke_agent react")
    tool, run = recorded.only("execute_tool look"), recorded.only("invoke_agent react")
    assert tool.attributes is not None
    assert (tool.status.status_code, tool.attributes["error.type"]) == (StatusCode.ERROR, "tool_failed")
    assert run.status.status_code is StatusCode.UNSET


async def test_the_span_of_a_cancelled_run_has_no_error_status(serve: Serve, recorded: Recorded) -> None:
    async with serve([*content("a"), 10.0]) as suite:
        await ask(suite, ("content.delta", cancels(suite)))
        await wait_for_span(recorded, "invoke_agent react")
    run = recorded.only("invoke_agent react")
    assert run.attributes is not None
    assert (run.attributes["headrace.run.state"], run.status.status_code) == ("cancelled", StatusCode.UNSET)


async def test_a_compaction_is_a_child_span_of_its_run_and_parent_of_its_calls(
    serve: Serve, recorded: Recorded
) -> None:
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        await ask_until_compacted(suite)
        await wait_for_span(recorded, "compact_context")
    span = recorded.only("compact_context")
    assert span.attributes == {"headrace.compaction.trigger": "auto", "headrace.compaction.outcome": "complete"}
    assert recorded.above(span)[0] == "invoke_agent react"
    assert recorded.above(recorded.only("headrace.v1.MemoryService/Compact"))[0] == "compact_context"


CHAT = "22222222-2222-4222-8222-222222222222"


def read_metric(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def count_live_runs() -> dict[str, float]:
    return {state: read_metric("headrace_runs", state=state) for state in ("queued", "running", "waiting")}


async def test_live_runs_are_counted_by_state(serve: Serve) -> None:
    before = read_metric("headrace_runs_ended_total", state="completed", error="")
    async with serve([*content("a"), 1.0, *finish()], answer("b")) as suite:
        first = asyncio.create_task(suite.ask("one", chat_id=CHAT))
        async with asyncio.timeout(50):
            await wait_until(lambda: count_live_runs() == {"queued": 0, "running": 1, "waiting": 0})
            second = asyncio.create_task(suite.ask("two", chat_id=CHAT))
            await wait_until(lambda: count_live_runs() == {"queued": 1, "running": 1, "waiting": 0})
            await first
            await second
            await wait_until(lambda: not any(count_live_runs().values()))
    assert read_metric("headrace_runs_ended_total", state="completed", error="") == before + 2
    assert REGISTRY.get_sample_value("headrace_runs", {"state": "running"}) is None


async def test_failed_runs_are_counted_by_error(serve: Serve) -> None:
    before = read_metric("headrace_runs_ended_total", state="failed", error="OVERLOADED")
    async with serve([Overloaded("full")]) as suite:
        await suite.ask()
    assert read_metric("headrace_runs_ended_total", state="failed", error="OVERLOADED") == before + 1


async def test_compactions_are_counted(serve: Serve) -> None:
    before = read_metric("headrace_compactions_total", trigger="auto", outcome="complete")
    async with serve(ANSWER) as suite:
        suite.llm.models = [SMALL]
        await ask_until_compacted(suite)
    # Once before the last run's turn, and perhaps once more after it.
    assert read_metric("headrace_compactions_total", trigger="auto", outcome="complete") - before in (1, 2)
