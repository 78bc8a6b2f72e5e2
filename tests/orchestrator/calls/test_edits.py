"""Arguments that a person gives a call are judged as the model's are, by schema and rules, wherever they are taken."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InvalidRequest, PermissionDenied
from headrace.v1 import tools_pb2
from tests.support.orchestrator import ANSWER, Serve, Suite, only, tool, two_replicas
from tests.support.orchestrator.answerers import KEYS, LISTED, as_user, asking
from tests.support.orchestrator.gate_runs import killing_owner, read_as, reading_run

SCHEMA = {
    "type": "object",
    "properties": {"at": {"type": "integer"}, "to": {"type": "object", "properties": {"name": {"type": "string"}}}},
    "required": ["at"],
}

RULES = """
tools:
  act:
    - {pattern: nowhere, then: deny}
    - {pattern: far, then: ask, answerers: {anyOf: ["user:cleo"]}}
"""

REFUSED = {
    "a field's type": ({"at": "there"}, "payload.arguments.at", 'the value is not of type "integer"'),
    "a field inside": ({"at": 1, "to": {"name": 7}}, "payload.arguments.to.name", "is not of type"),
    "a field that is missing": ({}, "payload.arguments", '"at" is a required property'),
    "a rule that denies": ({"at": 1, "to": {"name": "nowhere"}}, "payload.arguments", "nowhere"),
}
"""Edited arguments, the field that the error names, and what it says."""


@asynccontextmanager
async def serving(serve: Serve) -> AsyncGenerator[Suite]:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite:
        fields = {"answerers": {"any_of": ["tenant"]}, "parameters": json.dumps(SCHEMA)}
        suite.tools.tools.append(tool("act", "backend", approval="ask", **fields))
        yield suite


async def try_edit(address: str, name: str, gate: tuple[str, str], arguments: Any) -> str:
    """Return the status; raises what the edit is refused with."""
    async with as_user(address, name) as client:
        return (await client.answer_gate(*gate, json.dumps({"decision": "edit", "arguments": arguments}))).status


async def test_edited_arguments_that_schema_or_rules_refuse_leave_the_gate_open(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serving(serve) as suite, reading_run(suite.client) as (gate, _, run):
        for name, (arguments, field, said) in REFUSED.items():
            with pytest.raises(InvalidRequest, match=re.escape(said)) as refused:
                await try_edit(suite.address, "bob", gate, arguments)
            assert refused.value.metadata["field"] == field, name
            assert "there" not in refused.value.message, "the value is not in the error"
            async with as_user(suite.address, "bob") as client:
                assert (await client.gate(*gate)).state == "open", name
        assert await try_edit(suite.address, "bob", gate, {"at": 2}) == "accepted"
        events = await run
    [request] = suite.tools.requests
    assert json.loads(request.arguments) == {"at": 2}
    assert (only(events, "approval.answer")["decision"], only(events, "approval.answer")["by"]) == ("edit", "bob")


async def test_arguments_for_which_the_rules_ask_others_need_one_who_is_of_both(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    far = {"at": 1, "to": {"name": "far"}}
    async with serving(serve) as suite, reading_run(suite.client) as (gate, _, run):
        with pytest.raises(PermissionDenied, match="user:cleo"):
            await try_edit(suite.address, "bob", gate, far)
        assert await try_edit(suite.address, "cleo", gate, far) == "accepted"
        events = await run
    assert only(events, "request.submit")["by"] == "cleo"


async def test_a_replica_that_takes_the_run_over_judges_the_edit_too(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serving(serve) as suite, two_replicas(suite) as (a, b):
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, _):
            with pytest.raises(InvalidRequest):  # the owner lives: the other replica passes it on
                await try_edit(b.address, "bob", gate, {"at": "there"})
        with pytest.raises(InvalidRequest):
            await try_edit(b.address, "bob", gate, {"at": "there"})
        assert await try_edit(b.address, "bob", gate, {"at": 5}) == "accepted"
        assert (await read_as(b.address, "ada", gate[0]))[-1]["type"] == "run.complete"
    [request] = suite.tools.requests
    assert json.loads(request.arguments) == {"at": 5}
