"""Live readers, readers that attach at any seq, and readers of the chat's history get every field of a run's events."""

import asyncio
from typing import Any

import pytest

from headrace.v1 import agent_pb2
from tests.support.orchestrator import Serve, Suite, as_json, read, submits, tool
from tests.support.orchestrator.crashes import with_tools
from tests.support.orchestrator.recorded_runs import RUNS, World
from tests.support.orchestrator.runs import read_recorded, wait_for_ends
from tests.support.orchestrator.steps import Step, call, content, finish, reasoning
from tests.support.order import Event
from tests.support.whole_events import BLOCKS, MESSAGES, fold_fields

TOOLS = [
    tool("confirm", "frontend", description="Asks.", viewport_key="dialog", timeout_ms=20_000),
    tool("paint", "action", description="Paints.", parameters='{"type":"object","required":["n"]}'),
    tool("bare", "frontend"),
]
LISTED = {"toolConfig": {"backends": ["look", "fails"], "frontends": ["confirm", "bare"], "actions": ["paint"]}}
LOCATE = agent_pb2.ClientTool(name="locate", description="Finds out where one is.")


def call_in_turn(name: str, arguments: str) -> list[Step]:
    return reasoning("so") + call(name, arguments) + finish("tool_calls")


CALLS = {
    "a form": call_in_turn("confirm", '{"q": 1}'),
    "a form without more": call_in_turn("bare", ""),
    "a function of the caller": call_in_turn("locate", '{"of":"me"}'),
    "an action": call_in_turn("paint", '{"n": 1.50}'),
    "an action that is refused": call_in_turn("paint", "{}"),
    "an action of a template": call_in_turn("paint", '{"n":"{{look.saw}}"}'),
    "an unknown tool": call_in_turn("nobody", '{"n":1}'),
    "a tool without arguments": call_in_turn("look", ""),
    "a tool of a template": call_in_turn("look", '{"at":"{{look.saw}}"}'),
    "a tool of a template without a value": call_in_turn("look", '{"at":"{{look.other}}"}'),
    "a tool of text in braces": call_in_turn("look", '{"at":"{{ user }}"}'),
    "arguments that are a list": call_in_turn("look", "[1]"),
    "arguments that break off": call_in_turn("look", '{"at":'),
}


async def answer_form(suite: Suite, event: Event) -> None:
    await submits(suite, {"done": 1})(event)


async def follow_at_each_cursor(suite: Suite, message: str, **fields: Any) -> tuple[list[Event], list[list[Event]]]:
    """Return the events of a live reader, and for each of them those of a reader that attaches after it."""
    live: list[Event] = []
    async with suite.client.ask(message, **fields) as deltas, asyncio.TaskGroup() as group:
        readers: list[asyncio.Task[list[Event]]] = []
        run_id = ""
        async for delta in deltas:
            live.append(event := as_json(delta))
            if event["type"] == "run.start":
                run_id = event["runId"]
                group.create_task(read(suite.client, run_id))
            if run_id and delta.WhichOneof("payload") not in ("run_complete", "run_error", "run_cancel"):
                readers.append(group.create_task(read(suite.client, run_id, event["seq"])))
            if event.get("toolType") == "frontend":
                group.create_task(answer_form(suite, event))
    suite.chat_id = next(event["chatId"] for event in live if event["type"] == "request.query")
    start_position = next(position for position, event in enumerate(live) if event["type"] == "run.start")
    return live, [[*live[: start_position + 1 + position], *task.result()] for position, task in enumerate(readers)]


async def check_readers(suite: Suite, **fields: Any) -> None:
    live, readers = await follow_at_each_cursor(suite, "hello", **fields)
    expected, run_id = fold_fields(live), live[-1]["runId"]
    assert readers
    for events in readers:
        assert fold_fields(events) == expected
    await wait_for_ends(suite)
    assert fold_fields(await read_recorded(suite, run_id)) == expected
    for position, event in enumerate(live[:-1]):
        assert fold_fields([*live[: position + 1], *await read(suite.client, run_id, event["seq"])]) == expected


@pytest.mark.parametrize("name", RUNS)
async def test_every_reader_of_a_run_gets_every_field(serve: Serve, name: str) -> None:
    agent, play, changes = RUNS[name]
    async with serve(**with_tools(changes)) as suite:
        World(suite, play)
        await check_readers(suite, agent_key=agent)


@pytest.mark.parametrize("name", CALLS)
async def test_every_reader_of_a_call_gets_every_field(serve: Serve, name: str) -> None:
    async with serve(**LISTED) as suite:
        World(suite, [call("look", '{"at":1}', call_id="call_0"), CALLS[name], content("Done.")])
        suite.tools.tools += TOOLS
        await check_readers(suite, agent_key="react", client_tools=[LOCATE])


def list_fields(kind: str, *parts: str) -> set[str]:
    return {field.name for part in parts if (message := MESSAGES.get(f"{kind}_{part}")) for field in message.fields}


@pytest.mark.parametrize("kind", sorted(BLOCKS))
def test_a_snapshot_has_every_field_of_its_blocks_events(kind: str) -> None:
    pieces = {"delta", "chunk_index"}
    assert list_fields(kind, "start", "delta", "args", "end") - pieces <= list_fields(kind, "snapshot")
