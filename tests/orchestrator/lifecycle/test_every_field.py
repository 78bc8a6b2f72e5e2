"""Who follows a run live, who attaches at any cursor and who reads it in its chat's history knows each field of it."""

import asyncio
from typing import Any

import pytest

from headrace.v1 import agent_pb2
from tests.support.orchestrator import Serve, Suite, as_json, read, submits, tool
from tests.support.orchestrator.crashes import changes_of
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


def ask_for(name: str, arguments: str) -> list[Step]:
    return reasoning("so") + call(name, arguments) + finish("tool_calls")


CALLS = {
    "a form": ask_for("confirm", '{"q": 1}'),
    "a form without more": ask_for("bare", ""),
    "a function of the caller": ask_for("locate", '{"of":"me"}'),
    "an action": ask_for("paint", '{"n": 1.50}'),
    "an action that is refused": ask_for("paint", "{}"),
    "an action of a template": ask_for("paint", '{"n":"{{look.saw}}"}'),
    "an unknown tool": ask_for("nobody", '{"n":1}'),
    "a tool without arguments": ask_for("look", ""),
    "a tool of a template": ask_for("look", '{"at":"{{look.saw}}"}'),
    "a tool of a template without a value": ask_for("look", '{"at":"{{look.other}}"}'),
    "a tool of text in braces": ask_for("look", '{"at":"{{ user }}"}'),
    "arguments that are a list": ask_for("look", "[1]"),
    "arguments that break off": ask_for("look", '{"at":'),
}


async def answer_form(suite: Suite, event: Event) -> None:
    await submits(suite, {"done": 1})(event)


async def follow_at_each_cursor(suite: Suite, message: str, **fields: Any) -> tuple[list[Event], list[list[Event]]]:
    """The events of a live reader, and for each of them what a reader gets who attaches after it."""
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
    started = next(at for at, event in enumerate(live) if event["type"] == "run.start")
    return live, [[*live[: started + 1 + at], *task.result()] for at, task in enumerate(readers)]


async def check_readers(suite: Suite, **fields: Any) -> None:
    live, readers = await follow_at_each_cursor(suite, "hello", **fields)
    expected, run_id = fold_fields(live), live[-1]["runId"]
    assert readers
    for events in readers:
        assert fold_fields(events) == expected
    await wait_for_ends(suite)
    assert fold_fields(await read_recorded(suite, run_id)) == expected
    for at, event in enumerate(live[:-1]):
        assert fold_fields([*live[: at + 1], *await read(suite.client, run_id, event["seq"])]) == expected


@pytest.mark.parametrize("name", RUNS)
async def test_a_run_is_whole_for_each_reader(serve: Serve, name: str) -> None:
    agent, play, changes = RUNS[name]
    async with serve(**changes_of(changes)) as suite:
        World(suite, play)
        await check_readers(suite, agent_key=agent)


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_is_whole_for_each_reader(serve: Serve, name: str) -> None:
    async with serve(**LISTED) as suite:
        World(suite, [call("look", '{"at":1}', call_id="call_0"), CALLS[name], content("Done.")])
        suite.tools.tools += TOOLS
        await check_readers(suite, agent_key="react", client_tools=[LOCATE])


def list_fields(kind: str, *parts: str) -> set[str]:
    return {field.name for part in parts if (message := MESSAGES.get(f"{kind}_{part}")) for field in message.fields}


@pytest.mark.parametrize("kind", sorted(BLOCKS))
def test_a_snapshot_has_a_field_for_each_that_the_events_of_its_block_have(kind: str) -> None:
    pieces = {"delta", "chunk_index"}
    assert list_fields(kind, "start", "delta", "args", "end") - pieces <= list_fields(kind, "snapshot")
