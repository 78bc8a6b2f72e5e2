"""A run ends on the agent version with which it started, whatever happens to the agent meanwhile."""

import json
from contextlib import AsyncExitStack

import pytest

from headrace.client import Client
from headrace.errors import NotFound
from headrace.v1 import llm_pb2, tools_pb2
from tests.support.orchestrator import Serve, Step, Suite, call_tool, content, only, plans, submit
from tests.support.orchestrator.crashes import Crashes, read_rest, restart, run_until
from tests.support.orchestrator.own_agents import ANSWER, Model, check_first_version, run, start_in_every_state
from tests.support.orchestrator.subagents import HELPER
from tests.support.orchestrator.suite import write_agent
from tests.support.order import Event
from tests.support.waiting import until

OLD = "Look first."
AGENT = {"react": {"systemPrompt": OLD}, "toolConfig": {"backends": ["look"], "frontends": ["form"]}}


def change_agent(suite: Suite, change: str) -> None:
    """Change the prompt or the mode of agent `react`, or remove its file."""
    file = suite.agents / "react.json"
    agent = json.loads(file.read_text()) | {"description": "changed"}
    if change == "prompt":
        file.write_text(json.dumps(agent | {"react": {"systemPrompt": "Be brief."}, "budget": {"maxModelCalls": 1}}))
    elif change == "mode":
        file.write_text(json.dumps(agent | {"mode": "ONESHOT", "plain": {}}))
    else:
        file.unlink()


async def wait_until_described(client: Client, description: str = "changed") -> None:
    """Wait until agent `react` has this description, or is gone."""

    async def is_so() -> bool:
        return all(agent.description == description for agent in await client.agents() if agent.key == "react")

    await until(is_so)


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("change", ["prompt", "mode", "gone"])
async def test_runs_in_every_state_end_on_their_version_and_later_runs_get_the_new_one(
    serve: Serve, change: str, dies: bool
) -> None:
    async with serve(**AGENT) as suite, AsyncExitStack() as stack:
        model, crashes, client = Model(suite), Crashes(suite), suite.client
        events_by_run = await start_in_every_state(suite, client, "react")
        waiting, working, _ = events_by_run
        if dies:
            for run_id in events_by_run:
                crashes.kill(run_id)
            await suite.stop()
        change_agent(suite, change)
        model.may_end = True
        if dies:
            client = await stack.enter_async_context(restart(suite))
        await wait_until_described(client)
        requests_before = len(suite.llm.requests)
        if not dies:
            await client.cancel(working)
        assert (
            await submit(suite, waiting, only(events_by_run[waiting], "tool.start")["toolId"], {"a": 1}) == "accepted"
        )
        await check_first_version(client, events_by_run, "" if dies else working)
        assert len(suite.llm.requests) > requests_before
        assert {plans.system(request)[: len(OLD)] for request in suite.llm.requests} == {OLD}
        if change == "gone":
            with pytest.raises(NotFound):
                await run(client, "react")
        else:
            assert only(await run(client, "react"), "run.start")["agentVersion"] == 2
            assert not plans.system(suite.llm.requests[-1]).startswith(OLD)


async def ask(client: Client) -> Event:
    events = await run(client, "react")
    assert events[-1]["type"] == "run.complete"
    return only(events, "run.start")


async def test_an_unchanged_agent_keeps_its_version_across_processes(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        file = suite.agents / "react.json"
        first = await ask(suite.client)
        source = json.loads(file.read_text())
        fields_of_the_run = {"runId": 0, "chatId": 0, "timestamp": 0, "seq": 0}
        assert await ask(suite.client) | fields_of_the_run == first | fields_of_the_run
        async with restart(suite) as client:
            assert (await ask(client))["agentVersion"] == 1, "another process finds the version by its hash"
            file.write_text(json.dumps(source | {"description": "changed"}))
            await wait_until_described(client)
            second = await ask(client)
            file.write_text(json.dumps(source, indent=4))
            await wait_until_described(client, "")
            assert (await ask(client))["agentVersionHash"] == first["agentVersionHash"]
        assert (second["agentVersion"], len(suite.memory.versions)) == (2, 3)


async def test_a_sub_agent_is_pinned_with_its_caller(serve: Serve) -> None:
    task = json.dumps({"task": "find", "agentKey": "helper"})
    async with serve(subagents=["helper"], beside={"helper": HELPER}) as suite:
        may_end = False

        def reply(request: llm_pb2.ChatRequest) -> list[Step]:
            if plans.last_text(request).startswith("hello"):
                return call_tool("call_subagent", task)
            return ANSWER if may_end or request.model == "m" else [*content("Hm."), 3600.0]

        suite.llm.reply = reply
        events_before = await run_until(suite, "content.delta")
        changed = HELPER | {"subagents": ["oneshot"], "react": {"systemPrompt": "Refuse."}}
        write_agent(suite.config.config_dir, "helper", changed)
        may_end = True
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
            assert events_after[-1]["type"] == "run.complete"
            assert plans.system(suite.llm.requests[-2]).startswith("You help with find.")
            assert (await ask(client))["agentVersion"] == 2, "a changed sub-agent is a new version of its caller"
        assert plans.system(suite.llm.requests[-2]) == "Refuse."


async def test_a_run_keeps_the_tool_list_with_which_it_started(serve: Serve) -> None:
    turns = [call_tool("look"), [*content("Hel"), 3600.0], call_tool("look", call_id="call_2"), ANSWER]
    async with serve(*turns, toolConfig={"backends": ["look", "slow"]}) as suite:
        suite.tools.tools[0].description = "Looks."
        suite.tools.tools[1].description = "Is slow."
        events_before = await run_until(suite, "content.delta")
        del suite.tools.tools[0]
        suite.tools.plays["look"] = [[NotFound("tool 'look' does not exist")]]
        suite.tools.tools[0].description = "Is fast."
        suite.tools.tools.append(tools_pb2.Tool(name="new", parameters="{}", kind="backend", always_available=True))
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
            assert events_after[-1]["type"] == "run.complete"
            assert json.loads(only(events_after, "tool.result")["result"])["error"] == "NOT_FOUND"
            tool_lists = [[(tool.name, tool.description) for tool in request.tools] for request in suite.llm.requests]
            assert tool_lists[0][:2] == [("look", "Looks."), ("slow", "Is slow.")]
            assert tool_lists[-1] == tool_lists[0]
            assert (await ask(client))["agentVersion"] == 2
        names = [tool.name for tool in suite.llm.requests[-1].tools]
        assert "new" in names
        assert "look" not in names


async def test_tools_listed_per_user_are_not_pinned(serve: Serve) -> None:
    listed = {"backends": ["look", "s__search"]}
    connect = tools_pb2.Tool(name="s__connect", parameters="{}", kind="backend", per_user_server="s")
    search = tools_pb2.Tool(name="s__search", description="POISON", parameters="{}", kind="backend")
    async with serve(ANSWER, toolConfig=listed) as suite:

        async def ask_anew(*tools: tools_pb2.Tool, version: int = 0) -> list[str]:
            """Return the server's tools in the model's request when the server lists these."""
            suite.tools.tools[2:] = tools
            async with restart(suite) as client:  # A new process knows no tools yet.
                fields = {"agent_version": version} if version else {}
                assert only(await run(client, "react", **fields), "run.start")["agentVersion"] == (version or 2)
                source = (suite.agents / "react.json").read_text()
                assert not (await client.validate_agent(source, agent_key="react")).problems
            return [tool.description or tool.name for tool in suite.llm.requests[-1].tools if tool.name[:3] == "s__"]

        suite.tools.tools.append(search)  # As stored by a release that showed one user's tools to all users.
        assert (await ask(suite.client))["agentVersion"] == 1
        assert await ask_anew(connect, version=1) == ["s__connect"]
        search.per_user_server, search.description = "s", "of the user"
        assert await ask_anew(connect, search, version=1) == ["of the user"]
        assert await ask_anew(connect, search) == ["of the user"]
        assert await ask_anew(connect) == ["s__connect"]


async def test_a_changed_approval_applies_to_running_runs(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0], call_tool("look"), ANSWER) as suite:
        events_before = await run_until(suite, "content.delta")
        suite.tools.tools[0].approval = "deny"
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
        assert "denied" in only(events_after, "tool.result")["result"]
        assert suite.tools.requests == []


async def test_runs_start_when_memory_keeps_no_versions(serve: Serve) -> None:
    async with serve([*content("Hel"), 3600.0], ANSWER) as suite:
        suite.memory.keeps_versions = False
        events_before = await run_until(suite, "content.delta")
        assert "agentVersion" not in only(events_before, "run.start")
        change_agent(suite, "prompt")
        async with restart(suite) as client:
            events_after = await read_rest(client, events_before)
        assert only(events_after, "run.notice")["code"] == "AGENT_CHANGED"
        assert events_after[-1]["type"] == "run.complete"


async def test_runs_start_while_the_tools_service_is_away(serve: Serve) -> None:
    async with serve(ANSWER, toolConfig={}) as suite:
        suite.tools.breaking |= {"ListTools", "ListSkills"}
        assert (await ask(suite.client))["agentVersion"] == 1
