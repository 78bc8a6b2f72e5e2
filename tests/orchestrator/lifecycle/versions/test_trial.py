"""A run may try another model or prompt than its agent has, and keeps it when it is taken over."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from headrace.errors import HeadraceError, InvalidRequest, NotFound, PermissionDenied, UnknownPlaceholder
from headrace.v1 import agent_pb2
from tests.support.orchestrator import Serve, Suite, as_json, plans, read, run_of
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.own_agents import grant, make, run, tenants
from tests.support.orchestrator.steps import answer, call_tool
from tests.support.order import Event

ANSWER = answer("Done.")
TRIAL = agent_pb2.AgentTrial(provider_key="other", model="big", system_prompt="You try.")


def show_last(suite: Suite) -> tuple[str, str, str]:
    """Provider, model and prompt of the last request."""
    last = suite.llm.requests[-1]
    return last.provider_key, last.model, plans.system(last)


async def test_a_trial_is_of_one_run_and_outlives_its_process(serve: Serve, tmp_path: Path) -> None:
    async with serve(call_tool("look"), ANSWER, react={"systemPrompt": "Old."}) as suite:
        await suite.ask(trial=TRIAL)
        assert show_last(suite) == ("other", "big", "You try.")
        await suite.ask(trial=agent_pb2.AgentTrial(model="small"))
        assert show_last(suite) == ("scripted", "small", "Old.")
        await suite.ask()
        assert show_last(suite) == ("scripted", "m", "Old.")
        assert len(suite.memory.versions) == 1, "what is tried is no version of the agent"
        await suite.stop()
        suite.tools.tools[0].effect = "read"  # the next owner calls it again, and asks nobody
        crashes, seen = Crashes(suite), list[Event]()
        suite.llm.turns = [call_tool("look"), ANSWER]
        suite.llm.requests.clear()
        crashes.kill_at(2)
        chat_id = str(uuid.uuid4())
        async with (
            restart(suite) as client,
            client.ask("hello", agent_key="react", chat_id=chat_id, trial=TRIAL) as deltas,
        ):
            seen = [as_json(delta) async for delta in deltas]
        async with restart(suite) as client:
            rest = await read(client, run_of(seen))
    assert rest[-1]["type"] == "run.complete"
    assert show_last(suite) == ("other", "big", "You try.")


async def test_a_definition_is_tried_before_it_is_published(serve: Serve) -> None:
    async with tenants(serve, ANSWER) as (suite, ada, bob):
        tried = make("new", toolConfig={}, react={"systemPrompt": "I am new."})
        events = await run(ada, "new", trial=agent_pb2.AgentTrial(definition=tried))
        assert events[-1]["type"] == "run.complete"
        assert show_last(suite) == ("scripted", "m", "I am new.")
        assert await ada.stored_agents() == []
        assert not suite.memory.versions, "what is tried is no version of the agent"
        with pytest.raises(NotFound):
            await run(ada, "new")
        for client, definition, key, error, problem in (
            (ada, make("new", toolConfig={"backends": ["free_one", "bash"]}), "new", PermissionDenied, "tool 'bash'"),
            (bob, make("new"), "new", PermissionDenied, "tool 'look'"),
            (ada, tried, "other", InvalidRequest, "agentKey"),
            (ada, tried, "", InvalidRequest, "agentKey"),
            (ada, make("new", react={"systemPrompt": 7}), "new", InvalidRequest, "react.systemPrompt"),
            (ada, "{", "new", InvalidRequest, "trial.definition"),
        ):
            with pytest.raises(error, match=problem):
                await run(client, key, trial=agent_pb2.AgentTrial(definition=definition))
        with pytest.raises(InvalidRequest, match="agentVersion"):
            await run(ada, "new", trial=agent_pb2.AgentTrial(definition=tried), agent_version=1)


async def test_a_definition_that_is_tried_outlives_its_process(serve: Serve) -> None:
    async with serve(call_tool("look"), ANSWER) as suite:
        grant(suite, {"grants": [{"tenants": ["default"], "models": ["scripted/m"], "tools": ["look"]}]})
        suite.tools.tools[0].effect = "read"
        trial = agent_pb2.AgentTrial(definition=make("new", react={"systemPrompt": "I am new."}))
        await suite.stop()
        crashes, seen = Crashes(suite), list[Event]()
        crashes.kill_at(2)
        chat_id = str(uuid.uuid4())
        async with (
            restart(suite) as client,
            client.ask("hello", agent_key="new", chat_id=chat_id, trial=trial) as deltas,
        ):
            seen = [as_json(delta) async for delta in deltas]
        async with restart(suite) as client:
            rest = await read(client, run_of(seen))
    assert rest[-1]["type"] == "run.complete"
    assert show_last(suite) == ("scripted", "m", "I am new.")


async def test_what_cannot_be_tried_is_refused(serve: Serve) -> None:
    prompt = agent_pb2.AgentTrial(system_prompt="{{nothing}}")
    for agent, trial, error in (
        ({}, prompt, UnknownPlaceholder),
        (plans.agent(), agent_pb2.AgentTrial(system_prompt="x"), InvalidRequest),
    ):
        async with serve(ANSWER, **agent) as suite:
            with pytest.raises(error):
                await suite.ask(trial=trial)
    async with serve(ANSWER, keys={"key-of-ada": "acme/ada staff ask,operate"}) as suite:
        refused: type[HeadraceError] = PermissionDenied
        with pytest.raises(refused):
            await suite.ask(trial=TRIAL)
