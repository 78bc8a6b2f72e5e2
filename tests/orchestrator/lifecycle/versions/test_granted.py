"""At run time a tenant's own agents reach only what is granted, however it is named."""

import json
import uuid
from contextlib import AsyncExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headrace.errors import HeadraceError, InvalidRequest, KeyTaken, NotFound, PermissionDenied
from headrace.v1 import agent_pb2, llm_pb2, tools_pb2
from services.orchestrator.agents.grants import GrantsError, parse_grants
from tests.support.local_client import open_client
from tests.support.orchestrator import MODEL, Serve, only, plans, read, tool
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.definitions import BASE, MISTAKES
from tests.support.orchestrator.definitions import put as set_field
from tests.support.orchestrator.events import ask_for, ask_until, run_of
from tests.support.orchestrator.own_agents import (
    GRANTS,
    KEYS,
    Model,
    check_first_version,
    grant,
    make,
    put,
    run,
    start_in_every_state,
    tenants,
    wait_for_owner,
    wait_for_tool,
)
from tests.support.orchestrator.steps import answer, call_tool
from tests.support.waiting import until

ANSWER = answer("Done.")
FORMS = {"frontends": ["form"], "backends": ["look"]}


def list_offered_tools(request: llm_pb2.ChatRequest) -> set[str]:
    return {given.name for given in request.tools}


@pytest.mark.parametrize("trial", [{"system_prompt": "Obey me."}, {"model": "dear"}, {}])
async def test_a_trial_of_an_operators_agent_needs_the_tenants_grants(serve: Serve, trial: dict[str, str]) -> None:
    async with tenants(serve, ANSWER, toolConfig={"backends": ["slow", "look"]}) as (suite, ada, _):
        await ask_for(ada, "hello", agent_key="react")
        assert list_offered_tools(suite.llm.requests[-1]) >= {"slow", "look"}, "the operator's own agents need no grant"
        with pytest.raises(PermissionDenied, match=r"'react' may not be run: .* not granted"):
            await ask_for(ada, "hello", agent_key="react", trial=agent_pb2.AgentTrial(**trial))
        assert len(suite.llm.requests) == 1


async def test_a_model_is_offered_only_granted_tools_skills_and_agents(serve: Serve) -> None:
    async with tenants(serve, ANSWER, toolConfig={"backends": ["slow"]}) as (suite, ada, _):
        suite.tools.tools += [
            tools_pb2.Tool(name="core", parameters="{}", kind="backend", always_available=True, tier="core"),
            tools_pb2.Tool(name="free_core", parameters="{}", kind="backend", always_available=True, tier="core"),
        ]
        suite.tools.skills += [tools_pb2.Skill(id="chart", name="Chart", description="charts")]
        await put(ada, make(toolConfig={"backends": ["look", "@core", "call_subagent"]}, subagents=["oneshot"]))
        await wait_for_tool(ada, "free_core")
        params = json.dumps({"persistentTools": ["slow"]})
        events = await ask_for(ada, "@slow @chart @react @oneshot hello", agent_key="own", params=params)
        request = suite.llm.requests[-1]
        assert list_offered_tools(request) & {"look", "slow", "core", "free_core"} == {"look", "free_core"}
        described = next(given.description for given in request.tools if given.name == "call_subagent")
        assert "agentKey oneshot" in described
        assert "agentKey react" not in described
        notices = " ".join(event.get("message", "") for event in events if event["type"] == "run.notice")
        assert all(name in notices for name in ("@slow", "@chart", "@react"))
        assert "@oneshot" not in notices
        assert "chart" not in plans.system(request)
        assert suite.tools.linked == []
        await run(ada, "react")
        assert {"slow", "core"} <= list_offered_tools(suite.llm.requests[-1]), "the operator's own agents need no grant"


async def test_an_operators_agent_cannot_call_a_tenants_agent(serve: Serve) -> None:
    turns = call_tool("call_subagent", '{"agentKey":"own","task":"do"}')
    async with tenants(serve, turns, ANSWER, subagents=["own"]) as (suite, ada, _):
        await put(ada, make())
        events = await run(ada, "react")
        result = only(events, "tool.result")
        assert "UNKNOWN_AGENT" in result["result"] or not result["ok"]
        assert not any(plans.system(request).startswith("Own.") for request in suite.llm.requests)


async def test_a_running_run_loses_a_withdrawn_grant(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, _):
        suite.tools.tools.append(tool("form", "frontend"))
        await wait_for_tool(ada, "form")
        suite.llm.turns = [call_tool("form"), call_tool("look"), ANSWER]
        await put(ada, make(toolConfig=FORMS))
        for withdrawn, end in (({"tools": ["form"]}, "run.complete"), ({"models": []}, "run.error")):
            suite.llm.requests.clear()
            events_before = await ask_until(ada, "tool.end", "wait", agent_key="own", chat_id=str(uuid.uuid4()))
            grant(suite, {"grants": [GRANTS["grants"][0] | withdrawn]})
            await wait_for_owner(ada, "own", "")
            await ada.submit(run_of(events_before), '{"a":1}', tool_id=only(events_before, "tool.start")["toolId"])
            events_after = await read(ada, run_of(events_before), events_before[-1]["seq"])
            assert events_after[-1]["type"] == end
            if end == "run.complete":
                results = [event for event in events_after if event["type"] == "tool.result"]
                assert "denied" in results[-1]["result"]
                assert suite.tools.requests == []
            else:
                assert events_after[-1]["error"]["code"] == "PERMISSION_DENIED"
            grant(suite)
            await wait_for_owner(ada, "own", "tenant")


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("change", ["changed", "removed"])
async def test_a_tenants_runs_in_every_state_end_on_their_version(serve: Serve, change: str, dies: bool) -> None:
    async with serve(keys={"key-of-ada": KEYS["key-of-ada"]}) as suite, AsyncExitStack() as stack:
        grant(suite)
        ada, model, crashes = suite.client, Model(suite), Crashes(suite)

        async def may_put() -> bool:
            return (await ada.put_agent(make(toolConfig=FORMS))).is_stored

        await until(may_put)
        events_by_run = await start_in_every_state(suite, ada, "own")
        waiting, working, _ = events_by_run
        if change == "removed":
            await ada.delete_agent("own")
        else:
            await put(ada, make(react={"systemPrompt": "New."}))
        model.may_end = True
        if dies:
            for run_id in events_by_run:
                crashes.kill(run_id)
            await suite.stop()
            await stack.enter_async_context(restart(suite))
            ada = await stack.enter_async_context(open_client(suite.address, token="key-of-ada"))
        else:
            await ada.cancel(working)
        await ada.submit(waiting, '{"a":1}', tool_id=only(events_by_run[waiting], "tool.start")["toolId"])
        await check_first_version(ada, events_by_run, "" if dies else working)
        assert {plans.system(request)[:4] for request in suite.llm.requests} == {"Own."}
        if change == "removed":
            with pytest.raises(NotFound):
                await run(ada)
        else:
            assert only(await run(ada), "run.start")["agentVersion"] == 2


async def test_with_precedence_store_a_tenants_agent_replaces_the_file(serve: Serve) -> None:
    async with tenants(serve, ANSWER, agents_precedence="store") as (suite, ada, bob):
        assert (await put(ada, make("oneshot"))).owner == "tenant"
        await run(ada, "oneshot")
        assert plans.system(suite.llm.requests[-1]).startswith("Own.")
        await run(bob, "oneshot")
        assert not plans.system(suite.llm.requests[-1]).startswith("Own.")
        assert sum(agent.key == "oneshot" for agent in await ada.agents()) == 1
        [problem] = await ada.agent_problems()
        assert problem.agent_key == "oneshot"
        assert "the store wins" in problem.problem
        await ada.delete_agent("oneshot")
        assert {agent.key: agent.owner for agent in await ada.agents()}["oneshot"] == "operator"


async def test_malformed_definitions_are_refused_and_not_stored(serve: Serve) -> None:
    """200 definitions: wrong fields, random JSON, truncated or invalid JSON, and tools that are not granted."""
    definitions: list[str] = []
    wrong_fields = st.sets(st.sampled_from(sorted(MISTAKES)), min_size=1, max_size=8).map(_make_wrong_definition)
    any_json = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*BASE, "x"]), inner, max_size=6),
        max_leaves=20,
    ).map(json.dumps)
    truncated = st.integers(0, len(make()) - 1).map(lambda at: make()[:at])
    no_json = st.text(min_size=1, max_size=200) | st.sampled_from(["[" * 5000, '{"key":"a"' * 500, "\ufeff{}", "{}"])
    ungranted = st.sampled_from(["shell", "server__tool", "read_file"]).map(
        lambda name: make(toolConfig={"backends": [name]})
    )

    @settings(max_examples=200, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(wrong_fields | any_json | truncated | no_json | ungranted)
    def collect(definition: str) -> None:
        definitions.append(definition)

    collect()
    async with tenants(serve, ANSWER) as (_, ada, _bob):
        before = [agent.key for agent in await ada.agents()]
        for definition in definitions:
            try:
                reply = await ada.put_agent(definition)
            except (InvalidRequest, KeyTaken):
                continue  # An empty definition, or one that is too large.
            except HeadraceError as error:  # pragma: no cover - the message if this test fails
                raise AssertionError(f"{error.reason} for {definition[:200]!r}") from error
            assert not reply.is_stored, definition
            assert any(problem.rule and not problem.is_warning for problem in reply.problems), definition
        assert len(definitions) >= 200
        assert [agent.key for agent in await ada.agents()] == before
        assert await ada.stored_agents() == []


def _make_wrong_definition(mistakes: set[str]) -> str:
    definition: dict[str, Any] = json.loads(json.dumps(BASE)) | {"modelConfig": dict(MODEL)}
    for path in sorted(mistakes):
        set_field(definition, path, MISTAKES[path])
    return json.dumps(definition)


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        ("grants: 5", "grants: "),
        ("grants: [{}]", "grants.0.tenants: "),
        ("grants: [{tenants: [a], tools: ['*x*']}]", "grants.0.tools.0: "),
        ("grants: [{tenants: [a], limits: {maxModelCalls: 0}}]", "grants.0.limits.maxModelCalls: "),
        ("grants: [{tenants: [a], sandbox: true}]", "grants.0.sandbox: "),
        (":", "not valid YAML"),
        ("grants: !!float x", "not valid YAML"),
        ("{a: " * 5000, "not valid YAML"),
    ],
)
def test_a_grants_file_with_a_mistake_is_refused(source: str, problem: str) -> None:
    with pytest.raises(GrantsError, match=problem):
        parse_grants(source.encode())


def test_several_grants_of_a_tenant_are_combined() -> None:
    text = {
        "grants": [
            {"tenants": ["*"], "models": ["p/*"], "limits": {"maxTokens": 10}},
            {"tenants": ["acme*"], "tools": ["Look"], "limits": {"maxModelCalls": 99}},
        ]
    }
    grants = parse_grants(json.dumps(text).encode())
    acme_grants, bolt_grants = grants.select("acme-x"), grants.select("bolt")
    assert acme_grants.allows_model("P", "any")
    assert acme_grants.allows_tool("look")
    assert not bolt_grants.allows_tool("look")
    assert (acme_grants.find_ceiling("max_model_calls"), bolt_grants.find_ceiling("max_model_calls")) == (99, 30)
    assert (acme_grants.find_ceiling("max_tokens"), bolt_grants.find_ceiling("max_tokens")) == (None, 10)
