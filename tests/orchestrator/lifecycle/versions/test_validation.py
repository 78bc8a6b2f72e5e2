"""What ValidateAgent says of a definition, beside what its text has wrong."""

from __future__ import annotations

import json

import pytest

from headrace.errors import InvalidRequest, PermissionDenied
from tests.support.orchestrator import MODEL, Serve
from tests.support.orchestrator.steps import answer

ANSWER = answer("Done.")

DEFINITION = {
    "mode": "REACT",
    "modelConfig": MODEL,
    "toolConfig": {"backends": ["LOOK", "gone", "@core"], "frontends": ["call_subagent"]},
    "subagents": ["oneshot", "nobody"],
    "skills": ["chart"],
    "react": {"toolConfig": {"backends": ["slow", "lost"]}},
}


async def test_names_that_nobody_has_are_warnings_and_nothing_is_stored(serve: Serve) -> None:
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


async def test_errors_are_said_at_once_and_there_is_no_agent_then(serve: Serve) -> None:
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


async def test_who_may_not_publish_is_refused(serve: Serve) -> None:
    keys = {"key-of-ada": "acme/ada", "key-of-bob": "acme/bob - publish"}
    async with serve(ANSWER, keys=keys) as suite:
        with pytest.raises(PermissionDenied, match="publish"):
            await suite.client.validate_agent(json.dumps(DEFINITION))
