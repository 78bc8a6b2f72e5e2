"""What a tenant's own agents reach at run time: nothing that is not granted, in whatever way it is named."""

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
    begin_in_every_state,
    check_first_version,
    grant,
    make,
    put,
    run,
    tenants,
    wait_for_owner,
    wait_for_tool,
)
from tests.support.orchestrator.steps import answer, call_tool
from tests.support.waiting import until

ANSWER = answer("Done.")
FORMS = {"frontends": ["form"], "backends": ["look"]}


def shown(request: llm_pb2.ChatRequest) -> set[str]:
    return {given.name for given in request.tools}


@pytest.mark.parametrize("trial", [{"system_prompt": "Obey me."}, {"model": "dear"}, {}])
async def test_a_trial_of_an_operators_agent_is_one_of_the_tenants(serve: Serve, trial: dict[str, str]) -> None:
    async with tenants(serve, ANSWER, toolConfig={"backends": ["slow", "look"]}) as (suite, ada, _):
        await ask_for(ada, "hello", agent_key="react")
        assert shown(suite.llm.requests[-1]) >= {"slow", "look"}, "the operator's own agents need no grant"
        with pytest.raises(PermissionDenied, match=r"'react' may not be run: .* not granted"):
            await ask_for(ada, "hello", agent_key="react", trial=agent_pb2.AgentTrial(**trial))
        assert len(suite.llm.requests) == 1


async def test_a_model_is_shown_what_is_granted_alone(serve: Serve) -> None:
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
        assert shown(request) & {"look", "slow", "core", "free_core"} == {"look", "free_core"}
        described = next(given.description for given in request.tools if given.name == "call_subagent")
        assert "agentKey oneshot" in described
        assert "agentKey react" not in described
        said = " ".join(event.get("message", "") for event in events if event["type"] == "run.notice")
        assert all(name in said for name in ("@slow", "@chart", "@react"))
        assert "@oneshot" not in said
        assert "chart" not in plans.system(request)
        assert suite.tools.linked == []
        await run(ada, "react")
        assert {"slow", "core"} <= shown(suite.llm.requests[-1]), "the operator's own agents need no grant"


async def test_an_operators_agent_calls_no_tenants(serve: Serve) -> None:
    turns = call_tool("call_subagent", '{"agentKey":"own","task":"do"}')
    async with tenants(serve, turns, ANSWER, subagents=["own"]) as (suite, ada, _):
        await put(ada, make())
        events = await run(ada, "react")
        result = only(events, "tool.result")
        assert "UNKNOWN_AGENT" in result["result"] or not result["ok"]
        assert not any(plans.system(request).startswith("Own.") for request in suite.llm.requests)


async def test_a_run_on_its_way_loses_what_is_withdrawn(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, _):
        suite.tools.tools.append(tool("form", "frontend"))
        await wait_for_tool(ada, "form")
        suite.llm.turns = [call_tool("form"), call_tool("look"), ANSWER]
        await put(ada, make(toolConfig=FORMS))
        for withdrawn, end in (({"tools": ["form"]}, "run.complete"), ({"models": []}, "run.error")):
            suite.llm.requests.clear()
            seen = await ask_until(ada, "tool.end", "wait", agent_key="own", chat_id=str(uuid.uuid4()))
            grant(suite, {"grants": [GRANTS["grants"][0] | withdrawn]})
            await wait_for_owner(ada, "own", "")
            await ada.submit(run_of(seen), '{"a":1}', tool_id=only(seen, "tool.start")["toolId"])
            rest = await read(ada, run_of(seen), seen[-1]["seq"])
            assert rest[-1]["type"] == end
            if end == "run.complete":
                results = [event for event in rest if event["type"] == "tool.result"]
                assert "denied" in results[-1]["result"]
                assert suite.tools.requests == []
            else:
                assert rest[-1]["error"]["code"] == "PERMISSION_DENIED"
            grant(suite)
            await wait_for_owner(ada, "own", "tenant")


@pytest.mark.parametrize("dies", [False, True])
@pytest.mark.parametrize("change", ["changed", "removed"])
async def test_runs_in_every_state_end_on_their_version(serve: Serve, change: str, dies: bool) -> None:
    async with serve(keys={"key-of-ada": KEYS["key-of-ada"]}) as suite, AsyncExitStack() as stack:
        grant(suite)
        ada, model, crashes = suite.client, Model(suite), Crashes(suite)

        async def may_put() -> bool:
            return (await ada.put_agent(make(toolConfig=FORMS))).is_stored

        await until(may_put)
        seen = await begin_in_every_state(suite, ada, "own")
        waiting, working, _ = seen
        if change == "removed":
            await ada.delete_agent("own")
        else:
            await put(ada, make(react={"systemPrompt": "New."}))
        model.may_end = True
        if dies:
            for run_id in seen:
                crashes.kill(run_id)
            await suite.stop()
            await stack.enter_async_context(restart(suite))
            ada = await stack.enter_async_context(open_client(suite.address, token="key-of-ada"))
        else:
            await ada.cancel(working)
        await ada.submit(waiting, '{"a":1}', tool_id=only(seen[waiting], "tool.start")["toolId"])
        await check_first_version(ada, seen, "" if dies else working)
        assert {plans.system(request)[:4] for request in suite.llm.requests} == {"Own."}
        if change == "removed":
            with pytest.raises(NotFound):
                await run(ada)
        else:
            assert only(await run(ada), "run.start")["agentVersion"] == 2


async def test_the_store_may_win_for_its_tenant(serve: Serve) -> None:
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


async def test_malformed_definitions_are_refused_and_leave_nothing(serve: Serve) -> None:
    """200 of them: mistakes of fields, any JSON, cut texts, what is no JSON, and what is not granted."""
    asked: list[str] = []
    wrong = st.sets(st.sampled_from(sorted(MISTAKES)), min_size=1, max_size=8).map(_spoil)
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from([*BASE, "x"]), inner, max_size=6),
        max_leaves=20,
    ).map(json.dumps)
    cut = st.integers(0, len(make()) - 1).map(lambda at: make()[:at])
    rest = st.text(min_size=1, max_size=200) | st.sampled_from(["[" * 5000, '{"key":"a"' * 500, "\ufeff{}", "{}"])
    barred = st.sampled_from(["shell", "server__tool", "read_file"]).map(
        lambda name: make(toolConfig={"backends": [name]})
    )

    @settings(max_examples=200, deadline=None, database=None, suppress_health_check=[HealthCheck.too_slow])
    @given(wrong | anything | cut | rest | barred)
    def collect(definition: str) -> None:
        asked.append(definition)

    collect()
    async with tenants(serve, ANSWER) as (_, ada, _bob):
        before = [agent.key for agent in await ada.agents()]
        for definition in asked:
            try:
                reply = await ada.put_agent(definition)
            except (InvalidRequest, KeyTaken):
                continue  # an empty one, or one too large
            except HeadraceError as error:  # pragma: no cover - what a failure of this test says
                raise AssertionError(f"{error.reason} for {definition[:200]!r}") from error
            assert not reply.is_stored, definition
            assert any(problem.rule and not problem.is_warning for problem in reply.problems), definition
        assert len(asked) >= 200
        assert [agent.key for agent in await ada.agents()] == before
        assert await ada.stored_agents() == []


def _spoil(mistakes: set[str]) -> str:
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
def test_a_file_of_grants_with_a_mistake_is_refused(source: str, problem: str) -> None:
    with pytest.raises(GrantsError, match=problem):
        parse_grants(source.encode())


def test_grants_of_a_tenant_add_up() -> None:
    text = {
        "grants": [
            {"tenants": ["*"], "models": ["p/*"], "limits": {"maxTokens": 10}},
            {"tenants": ["acme*"], "tools": ["Look"], "limits": {"maxModelCalls": 99}},
        ]
    }
    grants = parse_grants(json.dumps(text).encode())
    both, one = grants.select("acme-x"), grants.select("bolt")
    assert both.allows_model("P", "any")
    assert both.allows_tool("look")
    assert not one.allows_tool("look")
    assert (both.find_ceiling("max_model_calls"), one.find_ceiling("max_model_calls")) == (99, 30)
    assert (both.find_ceiling("max_tokens"), one.find_ceiling("max_tokens")) == (None, 10)
