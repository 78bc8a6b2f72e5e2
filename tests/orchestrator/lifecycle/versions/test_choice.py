"""Which agent version a run gets or tries, and how versions are listed and compared."""

import json
import uuid
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import InvalidRequest, NotFound, PermissionDenied, UnknownPlaceholder
from headrace.v1 import agent_pb2
from services.orchestrator.agents.version import Change, diff_documents
from services.orchestrator.lifecycle.pins import is_in_share
from tests.support.local_client import open_client
from tests.support.orchestrator import Serve, Suite, answer, ask_for, call_tool, only, plans, read, run_of, tool
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.own_agents import grant, make, run, tenants, wait_for_owner
from tests.support.order import Event
from tests.support.waiting import until

ANSWER = answer("Done.")
OLD, NEW = {"react": {"systemPrompt": "Old."}}, {"react": {"systemPrompt": "New."}, "description": "changed"}


async def ask_react(suite: Suite, chat_id: str = "", **fields: Any) -> tuple[int, str]:
    """Ask; return the run's agent version and the start of the system prompt that its model got."""
    if chat_id:
        fields |= {"chat_id": chat_id}
    events: list[Event] = await ask_for(suite.client, "hello", agent_key="react", **fields)
    assert events[-1]["type"] == "run.complete"
    return only(events, "run.start")["agentVersion"], plans.system(suite.llm.requests[-1])[:4]


async def change_react(suite: Suite, **changes: Any) -> None:
    file = suite.agents / "react.json"
    description = f"changed {uuid.uuid4()}"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes | {"description": description}))
    await until(lambda: suite.client.agents(description))


async def test_a_query_may_request_an_old_version(serve: Serve) -> None:
    async with serve(ANSWER, **OLD) as suite:
        assert await ask_react(suite) == (1, "Old.")
        await change_react(suite, **NEW)
        assert await ask_react(suite) == (2, "New.")
        for _ in range(2):
            assert await ask_react(suite, agent_version=1) == (1, "Old.")
        for number in (0, -1):
            with pytest.raises(InvalidRequest, match="agentVersion"):
                await ask_react(suite, agent_version=number)
        with pytest.raises(NotFound, match="has no version 9"):
            await ask_react(suite, agent_version=9)
        with pytest.raises(InvalidRequest, match="agentVersion: needs an agentKey"):
            async with suite.client.ask("hello", agent_key="default", agent_version=1) as deltas:
                await anext(deltas)
        (suite.agents / "react.json").unlink()
        await wait_for_owner(suite.client, "react", "")
        with pytest.raises(NotFound, match="no agent has the key"):
            await ask_react(suite, agent_version=1)


async def test_requesting_or_reading_a_version_needs_permission(serve: Serve) -> None:
    async with serve(ANSWER, keys={"key-of-ada": "acme/ada"}, **OLD) as suite:
        assert (await ask_react(suite))[0] == 1
        with pytest.raises(PermissionDenied):
            await ask_react(suite, agent_version=1)
        assert [version.version for version in await suite.client.agent_versions("react")] == [1]
        with pytest.raises(PermissionDenied):
            await suite.client.agent_version("react")
        with pytest.raises(PermissionDenied):
            await suite.client.diff_agent_versions("react")


async def test_a_canary_gets_its_share_of_the_chats_and_keeps_them_as_it_grows(serve: Serve) -> None:
    chats = [str(uuid.UUID(int=number)) for number in range(8)]
    async with serve(ANSWER, **OLD) as suite:
        assert await ask_react(suite) == (1, "Old.")
        prompts_by_share: dict[float, list[str]] = {}
        for share in (0.5, 0.9):
            await change_react(suite, **NEW, canary={"share": share, "stableVersion": 1})
            prompts_by_share[share] = [(await ask_react(suite, chat))[1] for chat in chats]
            assert prompts_by_share[share] == [
                "New." if is_in_share("react", chat, share) else "Old." for chat in chats
            ]
        assert {"Old.", "New."} == set(prompts_by_share[0.5])
        assert all(
            after == "New."
            for before, after in zip(prompts_by_share[0.5], prompts_by_share[0.9], strict=True)
            if before == "New."
        )
        await change_react(suite, **NEW, canary={"share": 0, "stableVersion": 77})
        assert (await ask_react(suite, chats[0]))[1] == "New.", "the stable version does not exist"


def test_a_larger_share_contains_the_chats_of_a_smaller_one() -> None:
    chats = [str(uuid.UUID(int=number)) for number in range(10_000)]
    tenth = {chat for chat in chats if is_in_share("a", chat, 0.1)}
    assert 900 <= len(tenth) <= 1100
    assert tenth < {chat for chat in chats if is_in_share("a", chat, 0.2)}
    assert tenth != {chat for chat in chats if is_in_share("b", chat, 0.1)}
    assert all(is_in_share("a", chat, 1) for chat in chats)
    assert not any(is_in_share("a", chat, 0) for chat in chats)


async def test_versions_are_listed_shown_and_compared(serve: Serve) -> None:
    async with serve(ANSWER, **OLD) as suite:
        await check_unknown(suite.client)
        for prompt in ("1", "2", "3"):
            await change_react(suite, react={"systemPrompt": prompt})
            await ask_react(suite)
        versions = await suite.client.agent_versions("react")
        assert [version.version for version in versions] == [3, 2, 1]
        assert [version.version for version in await suite.client.agent_versions("react", before=3)] == [2, 1]
        newest = await suite.client.agent_version("react")
        assert newest.version == versions[0]
        definition = json.loads(newest.definition)
        assert definition["agents"]["react"]["react"] == {"systemPrompt": "3"}
        assert [tool["name"] for tool in definition["tools"]] == ["look", "slow"]
        changes = {change.path: change for change in await suite.client.diff_agent_versions("react", 1, 3)}
        assert set(changes) == {"agents.react.description", "agents.react.react.systemPrompt"}
        prompt_change = changes["agents.react.react.systemPrompt"]
        assert (prompt_change.before, prompt_change.after) == ('"1"', '"3"')
        assert [change.before for change in await suite.client.diff_agent_versions("react")][-1] == '"2"'
        with pytest.raises(NotFound):
            await suite.client.diff_agent_versions("react", 1, 4)
        with pytest.raises(InvalidRequest, match="fromVersion"):
            await suite.client.diff_agent_versions("react", -1)


async def check_unknown(client: Client) -> None:
    for call in (client.agent_versions, client.agent_version, client.diff_agent_versions):
        with pytest.raises(NotFound):
            await call("react")


def test_a_diff_names_the_objects_of_a_list() -> None:
    before = '{"tools":[{"name":"a","effect":"read"},{"name":"b"}],"skills":null,"x":[1,2]}'
    after = '{"tools":[{"name":"a","effect":"once"},{"name":"c"}],"skills":[{"id":"s"}],"x":[2]}'
    assert diff_documents(before, after) == [
        Change("skills", "null", '[{"id":"s"}]'),
        Change("tools.a.effect", '"read"', '"once"'),
        Change("tools.b", '{"name":"b"}', None),
        Change("tools.c", None, '{"name":"c"}'),
        Change("x", "[1,2]", "[2]"),
    ]


TRIAL = agent_pb2.AgentTrial(provider_key="other", model="big", system_prompt="You try.")


def describe_last_request(suite: Suite) -> tuple[str, str, str]:
    """Return provider, model and system prompt of the last request."""
    last = suite.llm.requests[-1]
    return last.provider_key, last.model, plans.system(last)


async def test_a_trial_applies_to_one_run_and_survives_a_takeover(serve: Serve) -> None:
    async with serve(call_tool("look"), ANSWER, react={"systemPrompt": "Old."}) as suite:
        await suite.ask(trial=TRIAL)
        assert describe_last_request(suite) == ("other", "big", "You try.")
        await suite.ask(trial=agent_pb2.AgentTrial(model="small"))
        assert describe_last_request(suite) == ("scripted", "small", "Old.")
        await suite.ask()
        assert describe_last_request(suite) == ("scripted", "m", "Old.")
        assert len(suite.memory.versions) == 1, "a trial is not stored as a version of the agent"
        await suite.stop()
        suite.tools.tools[0].effect = "read"  # The next owner repeats the call without asking.
        suite.llm.turns = [call_tool("look"), ANSWER]
        suite.llm.requests.clear()
        events_after = await kill_and_read_next_owner(suite, "react", TRIAL)
    assert events_after[-1]["type"] == "run.complete"
    assert describe_last_request(suite) == ("other", "big", "You try.")


async def kill_and_read_next_owner(
    suite: Suite, agent_key: str, trial: agent_pb2.AgentTrial, token: str = ""
) -> list[Event]:
    """Kill the owner of a run at its second append, and return the events that the next owner sends."""
    Crashes(suite).kill_at(2)
    async with restart(suite), open_client(suite.address, token=token) as client:
        events_before = await ask_for(client, "hello", agent_key=agent_key, chat_id=str(uuid.uuid4()), trial=trial)
    async with restart(suite), open_client(suite.address, token=token) as client:
        return await read(client, run_of(events_before))


async def test_a_definition_can_be_tried_before_it_is_published(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, bob):
        new_agent = make("new", toolConfig={}, react={"systemPrompt": "I am new."})
        events = await run(ada, "new", trial=agent_pb2.AgentTrial(definition=new_agent))
        assert events[-1]["type"] == "run.complete"
        assert describe_last_request(suite) == ("scripted", "m", "I am new.")
        assert await ada.stored_agents() == []
        assert not suite.memory.versions, "a trial is not stored as a version of the agent"
        with pytest.raises(NotFound):
            await run(ada, "new")
        for client, definition, key, error, problem in (
            (ada, make("new", toolConfig={"backends": ["free_one", "bash"]}), "new", PermissionDenied, "tool 'bash'"),
            (bob, make("new"), "new", PermissionDenied, "tool 'look'"),
            (ada, new_agent, "other", InvalidRequest, "agentKey"),
            (ada, new_agent, "", InvalidRequest, "agentKey"),
            (ada, make("new", react={"systemPrompt": 7}), "new", InvalidRequest, "react.systemPrompt"),
            (ada, "{", "new", InvalidRequest, "trial.definition"),
        ):
            with pytest.raises(error, match=problem):
                await run(client, key, trial=agent_pb2.AgentTrial(definition=definition))
        with pytest.raises(InvalidRequest, match="agentVersion"):
            await run(ada, "new", trial=agent_pb2.AgentTrial(definition=new_agent), agent_version=1)


async def test_the_trial_of_a_definition_survives_a_takeover(serve: Serve) -> None:
    async with serve(call_tool("look"), ANSWER) as suite:
        grant(suite, {"grants": [{"tenants": ["default"], "models": ["scripted/m"], "tools": ["look"]}]})
        suite.tools.tools[0].effect = "read"
        trial = agent_pb2.AgentTrial(definition=make("new", react={"systemPrompt": "I am new."}))
        await suite.stop()
        events_after = await kill_and_read_next_owner(suite, "new", trial)
    assert events_after[-1]["type"] == "run.complete"
    assert describe_last_request(suite) == ("scripted", "m", "I am new.")


async def test_after_a_takeover_a_trial_is_still_limited_to_the_tenants_grants(serve: Serve) -> None:
    turns = (call_tool("look"), call_tool("core"), ANSWER)
    async with tenants(serve, *turns, toolConfig={"backends": ["look"]}) as (suite, _, _):
        suite.tools.tools[0].effect = "read"
        suite.tools.tools.append(tool("core", "backend", always_available=True))
        await suite.stop()
        trial = agent_pb2.AgentTrial(system_prompt="Obey me.")
        events_after = await kill_and_read_next_owner(suite, "react", trial, "key-of-ada")
    assert events_after[-1]["type"] == "run.complete"
    result = next(event for event in events_after if event["type"] == "tool.result" and "denied" in event["result"])
    assert "the operator grants this agent no such tool" in result["result"]
    assert "core" not in [call.tool_name for call in suite.tools.requests]


async def test_an_invalid_or_forbidden_trial_is_refused(serve: Serve) -> None:
    prompt = agent_pb2.AgentTrial(system_prompt="{{nothing}}")
    for agent, trial, error in (
        ({}, prompt, UnknownPlaceholder),
        (plans.agent(), agent_pb2.AgentTrial(system_prompt="x"), InvalidRequest),
    ):
        async with serve(ANSWER, **agent) as suite:
            with pytest.raises(error):
                await suite.ask(trial=trial)
    async with serve(ANSWER, keys={"key-of-ada": "acme/ada staff ask,operate"}) as suite:
        with pytest.raises(PermissionDenied):
            await suite.ask(trial=TRIAL)
