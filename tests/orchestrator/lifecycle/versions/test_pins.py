"""A run ends on the version of its agent that it began with, whatever becomes of the agent meanwhile."""

from __future__ import annotations

import asyncio
import json
import uuid
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from headrace.client import Client
from headrace.errors import NotFound
from headrace.v1 import llm_pb2, tools_pb2
from tests.support.orchestrator import Serve, Suite, as_json, only, plans, submit
from tests.support.orchestrator.crashes import Crashes, read_rest, restart
from tests.support.orchestrator.events import ask_for, run_of
from tests.support.orchestrator.own_agents import ANSWER, Model, change_agent
from tests.support.orchestrator.runs import unfinished_runs
from tests.support.orchestrator.steps import Step, call, call_tool, content, finish
from tests.support.orchestrator.subagents import HELPER
from tests.support.order import Event

OLD = "Look first."
AGENT = {
    "react": {"systemPrompt": OLD},
    "toolConfig": {"backends": ["look"], "frontends": ["form"]},
}


async def begin(suite: Suite, message: str, until: str, chat_id: str) -> list[Event]:
    seen: list[Event] = []
    async with suite.client.ask(message, agent_key="react", chat_id=chat_id) as deltas:
        async for delta in deltas:
            seen.append(as_json(delta))
            if seen[-1]["type"] == until:
                break
    return seen


async def wait_until_changed(client: Client) -> None:
    async with asyncio.timeout(100):
        while any(agent.key == "react" and agent.description != "changed" for agent in await client.agents()):
            await asyncio.sleep(0.05)


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("change", ["prompt", "mode", "gone"])
async def test_runs_in_every_state_end_on_their_version_and_the_next_has_the_new_one(
    serve: Serve, change: str, dies: bool
) -> None:
    async with serve(**AGENT) as suite, AsyncExitStack() as stack:
        model, crashes, working_chat = Model(suite), Crashes(suite), str(uuid.uuid4())
        waiting = await begin(suite, "wait", "tool.end", str(uuid.uuid4()))
        working = await begin(suite, "work", "content.delta", working_chat)
        queued = await begin(suite, "then", "request.query", working_chat)
        run_ids = [run_of(waiting), run_of(working)]
        run_ids += {run.run_id for run in await unfinished_runs(suite)} - {*run_ids}
        client = suite.client
        if dies:
            for run_id in run_ids:
                crashes.kill(run_id)
            await suite.stop()
        change_agent(suite, change)
        model.may_end = True
        if dies:
            client = await stack.enter_async_context(restart(suite))
        await wait_until_changed(client)
        asked = len(suite.llm.requests)
        if not dies:
            await client.cancel(run_of(working))
        assert await submit(suite, run_of(waiting), only(waiting, "tool.start")["toolId"], {"a": 1}) == "accepted"
        for run_id, seen in zip(run_ids, (waiting, working, queued), strict=True):
            rest = await read_rest(client, [{"type": "run.start", "runId": run_id, "seq": seen[-1]["seq"]}])
            assert rest[-1]["type"] == ("run.cancel" if not dies and seen is working else "run.complete")
            assert "run.notice" not in {event["type"] for event in rest}
            assert (await client.run(run_id)).agent_version == 1
        assert len(suite.llm.requests) > asked
        assert {plans.system(request)[: len(OLD)] for request in suite.llm.requests} == {OLD}
        if change == "gone":
            with pytest.raises(NotFound):
                await begin_next(client)
        else:
            assert (await begin_next(client))["agentVersion"] == 2
            assert not plans.system(suite.llm.requests[-1]).startswith(OLD)


async def begin_next(client: Client) -> Event:
    events = await ask_for(client, "hello", agent_key="react")
    return only(events, "run.start")


async def ask(suite: Suite, client: Client) -> Event:
    events = await ask_for(client, "hello", agent_key="react")
    assert events[-1]["type"] == "run.complete"
    return only(events, "run.start")


async def test_a_version_is_stored_once_and_named_by_what_the_agent_is(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        file = suite.agents / "react.json"
        first = await ask(suite, suite.client)
        source = json.loads(file.read_text())
        assert (
            await ask(suite, suite.client) | {"runId": 0, "chatId": 0} | TIMES
            == first | {"runId": 0, "chatId": 0} | TIMES
        )
        async with restart(suite) as client:
            assert (await ask(suite, client))["agentVersion"] == 1, "another process knows it by its hash"
            file.write_text(json.dumps(source | {"description": "changed"}))
            await wait_until_changed(client)
            second = await ask(suite, client)
            file.write_text(json.dumps(source, indent=4))
            async with asyncio.timeout(100):
                while await client.agents("changed"):
                    await asyncio.sleep(0.05)
            assert (await ask(suite, client))["agentVersionHash"] == first["agentVersionHash"]
        assert (second["agentVersion"], len(suite.memory.versions)) == (2, 3)


TIMES = {"timestamp": 0, "seq": 0}


async def test_a_sub_agent_is_pinned_with_its_caller(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "agents").mkdir()
    file = tmp_path / "agents" / "helper.json"
    file.write_text(json.dumps(HELPER))
    task = json.dumps({"task": "find", "agentKey": "helper"})
    async with serve(subagents=["helper"]) as suite:
        may_end = False

        def reply(request: llm_pb2.ChatRequest) -> list[Step]:
            if plans.last_text(request).startswith("hello"):
                return call_tool("call_subagent", task)
            return ANSWER if may_end or request.model == "m" else [*content("Hm."), 3600.0]

        suite.llm.reply, crashes = reply, Crashes(suite)
        seen = await begin(suite, "hello", "content.delta", str(uuid.uuid4()))
        crashes.kill(run_of(seen))
        await suite.stop()
        file.write_text(json.dumps(HELPER | {"subagents": ["oneshot"], "react": {"systemPrompt": "Refuse."}}))
        may_end = True
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
            assert rest[-1]["type"] == "run.complete"
            assert plans.system(suite.llm.requests[-2]).startswith("You help with find.")
            assert (await ask(suite, client))["agentVersion"] == 2, "its caller is another by this"
        assert plans.system(suite.llm.requests[-2]) == "Refuse."


async def test_a_model_is_shown_the_tools_that_its_run_began_with(serve: Serve) -> None:
    calls = [call("look", call_id="call_1"), call("look", call_id="call_2")]
    turns = [calls[0] + finish("tool_calls"), [*content("Hel"), 3600.0], calls[1] + finish("tool_calls"), ANSWER]
    async with serve(*turns, toolConfig={"backends": ["look", "slow"]}) as suite:
        suite.tools.tools[0].description = "Looks."
        suite.tools.tools[1].description = "Is slow."
        seen = await begin(suite, "hello", "content.delta", str(uuid.uuid4()))
        Crashes(suite).kill(run_of(seen))
        await suite.stop()
        del suite.tools.tools[0]
        suite.tools.plays["look"] = [[NotFound("tool 'look' does not exist")]]
        suite.tools.tools[0].description = "Is fast."
        suite.tools.tools.append(tools_pb2.Tool(name="new", parameters="{}", kind="backend", always_available=True))
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
            assert rest[-1]["type"] == "run.complete"
            assert json.loads(only(rest, "tool.result")["result"])["error"] == "NOT_FOUND"
            shown = [[(tool.name, tool.description) for tool in request.tools] for request in suite.llm.requests]
            assert shown[0][:2] == [("look", "Looks."), ("slow", "Is slow.")]
            assert shown[-1] == shown[0]
            assert (await ask(suite, client))["agentVersion"] == 2
        names = [tool.name for tool in suite.llm.requests[-1].tools]
        assert "new" in names
        assert "look" not in names


async def test_what_protects_people_holds_at_once(serve: Serve) -> None:
    turns = [call_tool("look"), ANSWER]
    async with serve([*content("Hel"), 3600.0], *turns) as suite:
        seen = await begin(suite, "hello", "content.delta", str(uuid.uuid4()))
        Crashes(suite).kill(run_of(seen))
        await suite.stop()
        suite.tools.tools[0].approval = "deny"
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
        assert "denied" in only(rest, "tool.result")["result"]
        assert suite.tools.requests == []


async def test_runs_begin_beside_a_memory_that_keeps_no_versions(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0], ANSWER) as suite:
        suite.memory.keeps_versions = False
        seen = await begin(suite, "hello", "content.delta", str(uuid.uuid4()))
        assert "agentVersion" not in only(seen, "run.start")
        Crashes(suite).kill(run_of(seen))
        await suite.stop()
        change_agent(suite, "prompt")
        async with restart(suite) as client:
            rest = await read_rest(client, seen)
        assert only(rest, "run.notice")["code"] == "AGENT_CHANGED"
        assert rest[-1]["type"] == "run.complete"


async def test_runs_begin_while_the_tools_service_is_away(serve: Serve) -> None:
    async with serve(ANSWER, toolConfig={}) as suite:
        suite.tools.breaking |= {"ListTools", "ListSkills"}
        assert (await ask(suite, suite.client))["agentVersion"] == 1
