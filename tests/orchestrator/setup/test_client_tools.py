"""Functions that the caller of a query carries out: frontend tools of that one run."""

from __future__ import annotations

import json

import pytest

from headrace.v1 import agent_pb2
from tests.support.orchestrator import Serve, Suite, people
from tests.support.orchestrator.steps import call_tool, content, finish
from tests.support.order import Event

LOCATE = agent_pb2.ClientTool(
    name="locate",
    description="Where the user is",
    parameters='{"type":"object","properties":{"precision":{"type":"integer"}},"additionalProperties":false}',
)
TURNS = [call_tool("locate", '{"precision": 2}'), [*content("You are in Lyon."), *finish()]]


async def asked(suite: Suite, *tools: agent_pb2.ClientTool) -> list[Event]:
    async def answer(event: Event) -> None:
        assert await people.submit(suite, event["runId"], event["toolId"], {"city": "Lyon"}) == "accepted"

    return await people.ask(suite, ("tool.start", answer), client_tools=tools)


async def test_the_model_gets_what_the_caller_submits(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        events = await asked(suite, LOCATE)
    start = next(event for event in events if event["type"] == "tool.start")
    assert (start["toolName"], start["toolType"], start["toolApi"]) == ("locate", "frontend", "client")
    assert "viewportKey" not in start
    result = next(event for event in events if event["type"] == "tool.result")
    assert (json.loads(result["result"]), result["ok"]) == ({"city": "Lyon"}, True)
    assert [schema.name for schema in suite.llm.requests[0].tools][-1] == "locate"
    assert events[-1]["type"] == "run.complete"


async def test_they_are_tools_of_that_run_alone(serve: Serve) -> None:
    async with serve(*TURNS) as suite:
        await asked(suite, LOCATE)
        await people.ask(suite)
    assert "locate" not in [schema.name for schema in suite.llm.requests[-1].tools]


@pytest.mark.parametrize(
    ("tool", "field"),
    [
        (agent_pb2.ClientTool(name="Look"), "clientTools[1].name"),
        (agent_pb2.ClientTool(name="LOCATE"), "clientTools[1].name"),
        (agent_pb2.ClientTool(name="_plan_add_tasks_"), "clientTools[1].name"),
        (agent_pb2.ClientTool(name="odd", parameters='{"type":"thing"}'), "clientTools[1].parameters"),
    ],
)
async def test_a_name_that_is_taken_or_no_schema_is_refused(
    serve: Serve, tool: agent_pb2.ClientTool, field: str
) -> None:
    async with serve(*TURNS) as suite:
        events = await people.ask(suite, client_tools=[LOCATE, tool])
    assert events[-1]["type"] == "run.error"
    assert events[-1]["error"]["code"] == "INVALID_REQUEST"
    assert events[-1]["error"]["details"]["field"] == field
    assert not suite.llm.requests
