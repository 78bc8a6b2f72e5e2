"""Arguments that a person gives a call are judged as the model's are, by schema and rules, wherever they are taken."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from headrace.errors import HeadraceError, InvalidRequest, PermissionDenied
from headrace.v1 import tools_pb2
from tests.support.orchestrator import Serve, Suite, only, tool
from tests.support.orchestrator.answerers import KEYS, LISTED, as_user, asking
from tests.support.orchestrator.gate_runs import Asked, killing_owner
from tests.support.orchestrator.replicas import two_replicas
from tests.support.orchestrator.steps import ANSWER

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


def offer(suite: Suite) -> None:
    rule = {"any_of": ["tenant"]}
    suite.tools.tools.append(tool("act", "backend", approval="ask", answerers=rule, parameters=json.dumps(SCHEMA)))


async def try_edit(address: str, name: str, gate: tuple[str, str], arguments: Any) -> HeadraceError | str:
    payload = json.dumps({"decision": "edit", "arguments": arguments})
    async with as_user(address, name) as client:
        try:
            return (await client.answer_gate(*gate, payload)).status
        except HeadraceError as error:
            return error


async def test_edited_arguments_that_schema_or_rules_refuse_leave_the_gate_open(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, asyncio.TaskGroup() as group:
        offer(suite)
        asked = Asked()
        run = group.create_task(asked.follow(suite.client))
        gate = await asked.gate
        for name, (arguments, field, said) in REFUSED.items():
            error = await try_edit(suite.address, "bob", gate, arguments)
            assert isinstance(error, InvalidRequest), name
            assert said in error.message, name
            assert error.metadata["field"] == field, name
            assert "there" not in error.message, "the value is not in the error"
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
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, asyncio.TaskGroup() as group:
        offer(suite)
        asked = Asked()
        run = group.create_task(asked.follow(suite.client))
        gate = await asked.gate
        error = await try_edit(suite.address, "bob", gate, far)
        assert isinstance(error, PermissionDenied)
        assert "user:cleo" in error.message
        assert await try_edit(suite.address, "cleo", gate, far) == "accepted"
        events = await run
    assert only(events, "request.submit")["by"] == "cleo"


async def test_a_replica_that_takes_the_run_over_judges_the_edit_too(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite)
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, _):
            # The owner lives: the other replica passes it on.
            assert isinstance(await try_edit(b.address, "bob", gate, {"at": "there"}), InvalidRequest)
        assert isinstance(await try_edit(b.address, "bob", gate, {"at": "there"}), InvalidRequest)
        assert await try_edit(b.address, "bob", gate, {"at": 5}) == "accepted"
        async with as_user(b.address, "ada") as ada, ada.attach(gate[0], 0) as deltas:
            assert [delta async for delta in deltas][-1].HasField("run_complete")
    [request] = suite.tools.requests
    assert json.loads(request.arguments) == {"at": 5}
