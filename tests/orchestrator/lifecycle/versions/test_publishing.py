"""PutAgent, DeleteAgent and ValidateAgent: a tenant's own agents, in force for it alone, within its grants."""

import json
from collections.abc import Awaitable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import HeadraceError, InvalidRequest, KeyTaken, NotFound, PermissionDenied, VersionConflict
from tests.support.local_client import open_client
from tests.support.orchestrator import MODEL, Serve, answer, only, plans, replica
from tests.support.orchestrator.own_agents import GRANTS, grant, make, put, run, tenants, wait_for_owner

ANSWER = answer("Done.")


async def owners_by_key(client: Client) -> dict[str, str]:
    return {agent.key: agent.owner for agent in await client.agents()}


async def test_a_published_agent_is_in_force_only_for_its_tenant(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, bob):
        agent = await put(ada, make(description="ada's"), expected_version=0)
        assert (agent.owner, agent.version) == ("tenant", 1)
        assert await owners_by_key(ada) == {"oneshot": "operator", "own": "tenant", "react": "operator"}
        assert await owners_by_key(bob) == {"oneshot": "operator", "react": "operator"}
        start = only(await run(ada), "run.start")
        assert (start["agentKey"], start["agentVersion"]) == ("own", 1)
        assert plans.system(suite.llm.requests[-1]).startswith("Own.")
        foreign: list[Awaitable[Any]] = [
            run(bob),
            bob.agent_definition("own"),
            bob.agent_definition("own", 1),
            bob.agent_versions("own"),
            bob.agent_version("own", 1),
            bob.diff_agent_versions("own", 1, 1),
            bob.delete_agent("own"),
            ada.agent_definition("react"),
        ]
        for call in foreign:
            with pytest.raises(NotFound) as caught:
                await call
            assert "ada's" not in caught.value.message
        assert await bob.stored_agents() == []
        bobs_agent = await put(bob, make(toolConfig={}, react={"systemPrompt": "Bob's."}))
        assert bobs_agent.version == 1, "tenants' versions are numbered apart"
        await run(bob)
        assert plans.system(suite.llm.requests[-1]).startswith("Bob's.")
        assert json.loads((await ada.agent_definition("own")).definition)["description"] == "ada's"
        [stored] = await ada.stored_agents()
        assert (stored.key, stored.version, stored.updated_by, [*stored.problems]) == ("own", 1, "ada", [])


async def test_versions_are_fenced_listed_and_restored(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, _):
        first, second = make(), make(react={"systemPrompt": "Two."})
        await put(ada, first, expected_version=0)
        await put(ada, first, expected_version=0)  # A repetition.
        with pytest.raises(VersionConflict, match="version 1 is in force, not 0"):
            await ada.put_agent(second, expected_version=0)
        assert (await put(ada, second, expected_version=1)).version == 2
        assert [version.version for version in await ada.agent_versions("own")] == [2, 1]
        paths = [change.path for change in await ada.diff_agent_versions("own", 1, 2)]
        assert paths == ["agents.own.react.systemPrompt"]
        back = await ada.agent_definition("own", 1)
        assert json.loads(back.definition) == json.loads(first)
        assert (await put(ada, back.definition, expected_version=2)).version == 1
        assert only(await run(ada), "run.start")["agentVersion"] == 1
        assert only(await run(ada, agent_version=2), "run.start")["agentVersion"] == 2
        assert plans.system(suite.llm.requests[-1]).startswith("Two.")
        with pytest.raises(VersionConflict):
            await ada.delete_agent("own", expected_version=2)
        await ada.delete_agent("own", expected_version=1)
        for call in (run(ada), ada.delete_agent("own"), ada.agent_definition("own")):
            with pytest.raises(NotFound):
                await call
        assert (await ada.agent_definition("own", 2)).version == 2, "its versions stay"
        assert len(await ada.agent_versions("own")) == 2


async def test_a_published_change_reaches_all_replicas_and_survives_a_restart(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, _), AsyncExitStack() as stack:
        second = await stack.enter_async_context(replica(suite, "b"))
        second_client = await stack.enter_async_context(open_client(second.address, token="key-of-ada"))
        await put(ada, make())
        await wait_for_owner(second_client, "own", "tenant")
        assert only(await run(second_client), "run.start")["agentVersion"] == 1
        await ada.delete_agent("own")
        assert [*await second_client.stored_agents()] == [], "a list of stored agents is read from memory at once"
        await put(ada, make("kept"))
        await suite.stop()
        third_replica = await stack.enter_async_context(replica(suite, "c"))
        third_client = await stack.enter_async_context(open_client(third_replica.address, token="key-of-ada"))
        assert await owners_by_key(third_client) == {"kept": "tenant", "oneshot": "operator", "react": "operator"}


async def test_a_wrong_definition_gets_every_problem_and_is_not_stored(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (_, ada, bob):
        wrong = make(
            modelConfig={"providerKey": "dear", "model": "x"},
            toolConfig={"backends": ["look", "shell", "FREE_look", "@core", "todo_write"], "actions": ["tap"]},
            skills=["chart"],
            subagents=["react", "oneshot"],
            budget={"maxModelCalls": 31, "maxSteps": 0},
            models={"vision": {"model": "eyes"}},
            memory={"summary": {"providerKey": "dear", "model": "s"}},
            name=5,
        )
        reply = await ada.put_agent(wrong)
        assert (reply.is_stored, reply.HasField("agent")) == (False, False)
        assert {problem.field for problem in reply.problems if not problem.is_warning} == {
            *("budget.maxModelCalls", "budget.maxSteps", "memory.summary.model", "modelConfig", "models.vision"),
            *("name", "skills.0", "subagents.0", "toolConfig.actions.0", "toolConfig.backends.1"),
        }
        checked = await ada.validate_agent(wrong, for_tenant=True)
        assert [*checked.problems] == [*reply.problems]
        assert await ada.stored_agents() == []
        assert await owners_by_key(ada) == {"oneshot": "operator", "react": "operator"}
        plain = await bob.put_agent(make())
        assert [problem.field for problem in plain.problems] == ["toolConfig.backends.0"], "another tenant's grants"
        custom = await ada.put_agent(make(mode="CUSTOM", custom={"mode": "own"}))
        assert "custom.mode" in {problem.field for problem in custom.problems}


async def test_publishing_needs_the_scope_publish(serve: Serve) -> None:
    keys = {"key-of-cat": "acme/cat - ask,answer,operate"}
    async with serve(ANSWER, keys=keys) as suite:
        calls: list[Awaitable[Any]] = [
            suite.client.put_agent(make()),
            suite.client.delete_agent("own"),
            suite.client.stored_agents(),
            suite.client.agent_definition("own"),
            suite.client.validate_agent(make()),
        ]
        for call in calls:
            with pytest.raises(PermissionDenied, match="publish"):
                await call


async def test_without_grants_no_agent_can_be_published(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        reply = await suite.client.put_agent(make(toolConfig={}))
        assert [problem.field for problem in reply.problems] == ["modelConfig"]
        assert not reply.is_stored


async def test_an_operators_file_takes_the_key_from_a_tenants_agent(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, bob):
        with pytest.raises(KeyTaken, match="files win"):
            await ada.put_agent(make("react"))
        with pytest.raises(KeyTaken):
            await ada.put_agent(make("REACT"))
        await put(ada, make())
        (suite.agents / "own.json").write_text(json.dumps({"mode": "ONESHOT", "modelConfig": MODEL, "plain": {}}))
        await wait_for_owner(ada, "own", "operator")
        assert only(await run(ada), "run.start")["agentVersion"] == 1
        assert not plans.system(suite.llm.requests[-1]).startswith("Own.")
        [problem] = await ada.agent_problems()
        assert (problem.agent_key, problem.file) == ("own", "")
        assert "files win" in problem.problem
        assert await bob.agent_problems() == []
        [stored] = await ada.stored_agents()
        assert [stored_problem.field for stored_problem in stored.problems] == ["key"]
        (suite.agents / "own.json").unlink()
        await wait_for_owner(ada, "own", "tenant")


async def test_a_withdrawn_grant_takes_its_agents_out_of_force(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, _):
        await put(ada, make())
        await put(ada, make("plain", toolConfig={}))
        grant(suite, {"grants": [GRANTS["grants"][0] | {"tools": []}]})
        await wait_for_owner(ada, "own", "")
        assert (await owners_by_key(ada))["plain"] == "tenant"
        for call in (run(ada), run(ada, agent_version=1)):
            with pytest.raises(PermissionDenied, match=r"toolConfig\.backends\.0: tool 'look' is not granted"):
                await call
        assert [problem.agent_key for problem in await ada.agent_problems()] == ["own"]
        with pytest.raises(PermissionDenied):
            await run(ada, "plain", trial={"model": "dear"})
        with pytest.raises(HeadraceError):
            await run(ada, "plain", agent_version=9)


DEFINITION = {
    "mode": "REACT",
    "modelConfig": MODEL,
    "toolConfig": {"backends": ["LOOK", "gone", "@core"], "frontends": ["call_subagent"]},
    "subagents": ["oneshot", "nobody"],
    "skills": ["chart"],
    "react": {"toolConfig": {"backends": ["slow", "lost"]}},
}


async def test_validating_warns_about_unknown_names_and_stores_nothing(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        reply = await suite.client.validate_agent(json.dumps(DEFINITION), "mine")
        assert {(problem.field, problem.is_warning) for problem in reply.problems} == {
            ("subagents.1", True),
            ("toolConfig.backends.1", True),
            ("react.toolConfig.backends.1", True),
            ("skills.0", True),
        }
        assert (reply.agent.key, reply.agent.mode) == ("mine", "REACT")
        assert [agent.key for agent in await suite.client.agents()] == ["oneshot", "react"]
        assert suite.memory.versions == []


async def test_validating_reports_all_errors_and_returns_no_agent(serve: Serve) -> None:
    async with serve(ANSWER) as suite:
        wrong = json.dumps(DEFINITION | {"verify": "MAYBE", "budget": {"maxSteps": 0}, "key": "auto"})
        reply = await suite.client.validate_agent(wrong)
        assert [(problem.field, problem.is_warning) for problem in reply.problems] == [
            ("budget.maxSteps", False),
            ("key", False),
            ("verify", False),
        ]
        assert not reply.HasField("agent")
        assert [problem.field for problem in (await suite.client.validate_agent("{")).problems] == [""]
        assert "key" in [problem.field for problem in (await suite.client.validate_agent("{}")).problems]
        with pytest.raises(InvalidRequest, match="definition"):
            await suite.client.validate_agent("")
