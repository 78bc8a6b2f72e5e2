"""Gates that several users must approve: votes are in the log, nobody votes twice, and edits are checked like calls."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InvalidRequest, PermissionDenied, QueueFull
from headrace.v1 import gates_pb2, memory_pb2, tools_pb2
from services.orchestrator.run.control.gates import NOTES_MAX
from services.runtime.clock import now_ms
from tests.support.orchestrator import ANSWER, Serve, Suite, call_tool, only, tool, two_replicas
from tests.support.orchestrator.answerers import APPROVE, KEYS, LISTED, as_user, asking, offer
from tests.support.orchestrator.gate_runs import killing_owner, read_as, reading_run, waiting_run
from tests.support.order import Event
from tests.support.waiting import wait_until

TWO = {"any_of": ["tenant"], "count": 2}
EDIT = '{"decision": "edit", "arguments": {"at": 9}}'


async def answer(address: str, name: str, gate: tuple[str, str], payload: str = APPROVE, **fields: Any) -> str:
    """Answer as `name`; return the status, followed by the number of missing votes."""
    async with as_user(address, name) as client:
        reply = await client.answer_gate(*gate, payload, **fields)
    assert reply.accepted == (reply.status in ("accepted", "voted"))
    return reply.status + (f" {reply.votes_missing}" if reply.HasField("votes_missing") else "")


async def find_listed_gate(address: str, name: str, gate: tuple[str, str]) -> gates_pb2.Gate:
    async with as_user(address, name) as client:
        [listed] = [candidate for candidate in (await client.gates()).gates if candidate.gate_id == gate[1]]
    return listed


def list_votes(events: list[Event]) -> list[tuple[str, str]]:
    return [(event["by"], event["decision"]) for event in events if event["type"] == "gate.step"]


def list_arguments(suite: Suite) -> list[Any]:
    return [json.loads(request.arguments) for request in suite.tools.requests]


async def test_the_call_runs_when_enough_different_users_have_approved(serve: Serve) -> None:
    async with waiting_run(serve, TWO) as (suite, gate, run):
        assert await answer(suite.address, "bob", gate, request_id="r1") == "voted 1"
        assert await answer(suite.address, "bob", gate, request_id="r1") == "voted 1"
        assert await answer(suite.address, "bob", gate, request_id="r2") == "duplicate"
        listed = await find_listed_gate(suite.address, "cleo", gate)
        assert ([*listed.voters], listed.answerers.count) == (["bob"], 2)
        assert suite.tools.requests == []
        assert await answer(suite.address, "cleo", gate) == "accepted"
        events = await run
        assert await answer(suite.address, "bob", gate, request_id="r1") == "voted 0"
    assert list_votes(events) == [("bob", "approve")]
    assert only(events, "gate.step")["credential"].startswith("api_key:")
    assert only(events, "request.submit")["by"] == only(events, "approval.answer")["by"] == "cleo"
    assert list_arguments(suite) == [{"at": 1}]


async def test_an_approval_submitted_as_a_tool_call_counts_as_one_vote(serve: Serve) -> None:
    async with waiting_run(serve, TWO) as (suite, (run_id, gate_id), _):
        async with as_user(suite.address, "bob") as bob:
            assert (await bob.submit(run_id, APPROVE, tool_id=gate_id)).status == "voted"
        assert suite.tools.requests == []
        async with as_user(suite.address, "cleo") as cleo:
            assert (await cleo.submit(run_id, APPROVE, tool_id=gate_id)).status == "accepted"


async def test_one_rejection_rejects_the_call(serve: Serve) -> None:
    async with waiting_run(serve, TWO) as (suite, gate, run):
        assert await answer(suite.address, "bob", gate) == "voted 1"
        assert await answer(suite.address, "cleo", gate, '{"decision": "reject"}') == "accepted"
        events = await run
    assert only(events, "approval.answer")["decision"] == "reject"
    assert suite.tools.requests == []


async def test_an_edit_restarts_the_count_of_votes(serve: Serve) -> None:
    async with waiting_run(serve, {"any_of": ["tenant"], "count": 3}) as (suite, gate, run):
        assert await answer(suite.address, "bob", gate) == "voted 2"
        assert await answer(suite.address, "cleo", gate, EDIT) == "voted 2"
        assert await answer(suite.address, "cleo", gate, EDIT) == "duplicate"
        assert await answer(suite.address, "cleo", gate) == "duplicate"
        assert [*(await find_listed_gate(suite.address, "bob", gate)).voters] == ["cleo"]
        async with as_user(suite.address, "ada") as ada:
            assert json.loads((await ada.gate(*gate)).arguments) == {"at": 9}, (
                "the edited arguments are now the ones to approve"
            )
        for name in ("bob", "ada"):
            with pytest.raises(InvalidRequest, match=r"payload.arguments: a vote has changed the arguments"):
                await answer(suite.address, name, gate)
        assert await answer(suite.address, "bob", gate, EDIT[:-1] + ', "note": "fine"}') == "voted 1"
        assert await answer(suite.address, "ada", gate, EDIT) == "accepted"
        events = await run
    assert list_votes(events) == [("bob", "approve"), ("cleo", "edit"), ("bob", "approve")]
    assert only(events, "approval.answer")["note"] == "fine"
    assert list_arguments(suite) == [{"at": 9}]


async def test_votes_survive_the_death_of_the_owner(serve: Serve) -> None:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, {"any_of": ["tenant"], "count": 3})
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, _):
            assert await answer(b.address, "bob", gate, EDIT, request_id="r1") == "voted 2"
        assert await answer(b.address, "bob", gate, EDIT, request_id="r1") == "voted 2"
        assert await answer(b.address, "bob", gate) == "duplicate"
        assert [*(await find_listed_gate(b.address, "cleo", gate)).voters] == ["bob"]
        with pytest.raises(InvalidRequest):
            await answer(b.address, "cleo", gate)
        assert await answer(b.address, "cleo", gate, EDIT) == "voted 1"
        assert await answer(b.address, "ada", gate, EDIT) == "accepted"
        assert (await read_as(b.address, "ada", gate[0]))[-1]["type"] == "run.complete"
    assert list_arguments(suite) == [{"at": 9}]


async def test_a_vote_still_being_stored_at_expiry_prevents_approval_by_expiry(serve: Serve, tmp_path: Path) -> None:
    rule = "{pattern: x, then: ask, onExpiry: approve, answerers: {anyOf: [tenant], count: 2}}"
    (tmp_path / "approvals.yaml").write_text(f"answerTimeoutMs: 2000\ntools: {{act: [{rule}]}}\n")
    turn = call_tool("act", '{"at": "x"}')
    async with serve(turn, ANSWER, keys=KEYS, **LISTED) as suite:
        suite.tools.tools = [tool("act", "backend")]

        async def hold_vote(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.HasField("gate_step") for line in request.lines):
                await wait_until(lambda: now_ms() >= expires_at + 500)

        suite.memory.before = hold_vote
        async with reading_run(suite.client) as (gate, follower, run):
            expires_at = only(follower.events, "gate.open")["expiresAt"]
            assert await answer(suite.address, "bob", gate) == "voted 1"
        events = await run
        assert suite.tools.requests == []
    assert only(events, "approval.answer")["decision"] == "reject"


async def test_request_ids_are_separate_for_each_user_and_kind_of_step(serve: Serve) -> None:
    async with waiting_run(serve, {"any_of": ["tenant"], "count": 3}) as (suite, gate, run):
        async with as_user(suite.address, "bob") as bob:
            assert await bob.ask_back(*gate, "what for?", request_id="r1") == "asked_back"
            assert await bob.delegate_gate(*gate, ["user:cleo"], request_id="r1") == "delegated"
        for name, missing in ("bob", 2), ("cleo", 1), ("cleo", 1):
            assert await answer(suite.address, name, gate, request_id="r1") == f"voted {missing}"
        assert await answer(suite.address, "ada", gate, request_id="r1") == "accepted"
        for name, status in ("operator", "duplicate"), ("bob", "voted 0"), ("ada", "accepted"):
            assert await answer(suite.address, name, gate, request_id="r1") == status, name
        events = await run
        for name, status in ("operator", "duplicate"), ("bob", "voted 0"), ("ada", "accepted"):
            assert await answer(suite.address, name, gate, request_id="r1") == status, name
    steps = [(event["step"], event["by"]) for event in events if event["type"] == "gate.step"]
    assert steps == [("asked_back", "bob"), ("delegated", "bob"), ("vote", "bob"), ("vote", "cleo")]


async def test_notes_do_not_use_up_votes_and_an_edit_with_long_arguments_is_refused(serve: Serve) -> None:
    async with waiting_run(serve, TWO) as (suite, gate, run):
        async with as_user(suite.address, "bob") as bob:
            for _ in range(NOTES_MAX):
                await bob.ask_back(*gate, "why?")
            with pytest.raises(QueueFull, match="100 delegations and questions"):
                await bob.delegate_gate(*gate, ["user:cleo"])
        long = json.dumps({"decision": "edit", "arguments": {"at": "x" * 65_536}})
        with pytest.raises(InvalidRequest, match=r"payload.arguments: must have at most 65,536 bytes"):
            await answer(suite.address, "bob", gate, long)
        assert await answer(suite.address, "bob", gate) == "voted 1"
        assert await answer(suite.address, "cleo", gate) == "accepted"
        assert (await run)[-1]["type"] == "run.complete"


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
"""Edited arguments, the field that the error names, and a part of its message."""


@asynccontextmanager
async def serving_with_schema(serve: Serve) -> AsyncGenerator[Suite]:
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite:
        fields = {"answerers": {"any_of": ["tenant"]}, "parameters": json.dumps(SCHEMA)}
        suite.tools.tools.append(tool("act", "backend", approval="ask", **fields))
        yield suite


async def try_edit(address: str, name: str, gate: tuple[str, str], arguments: Any) -> str:
    """Send an edit as `name` and return the status; an error of the call is raised."""
    async with as_user(address, name) as client:
        return (await client.answer_gate(*gate, json.dumps({"decision": "edit", "arguments": arguments}))).status


async def test_edited_arguments_refused_by_schema_or_rules_leave_the_gate_open(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serving_with_schema(serve) as suite, reading_run(suite.client) as (gate, _, run):
        for name, (arguments, field, problem) in REFUSED.items():
            with pytest.raises(InvalidRequest, match=re.escape(problem)) as refused:
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


async def test_an_edit_under_another_rule_needs_an_answerer_of_both_rules(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    far = {"at": 1, "to": {"name": "far"}}
    async with serving_with_schema(serve) as suite, reading_run(suite.client) as (gate, _, run):
        with pytest.raises(PermissionDenied, match="user:cleo"):
            await try_edit(suite.address, "bob", gate, far)
        assert await try_edit(suite.address, "cleo", gate, far) == "accepted"
        events = await run
    assert only(events, "request.submit")["by"] == "cleo"


async def test_a_replica_that_takes_over_the_run_checks_edits_too(serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serving_with_schema(serve) as suite, two_replicas(suite) as (a, b):
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, _):
            with pytest.raises(InvalidRequest):  # The owner is alive, so the other replica forwards the call.
                await try_edit(b.address, "bob", gate, {"at": "there"})
        with pytest.raises(InvalidRequest):
            await try_edit(b.address, "bob", gate, {"at": "there"})
        assert await try_edit(b.address, "bob", gate, {"at": 5}) == "accepted"
        assert (await read_as(b.address, "ada", gate[0]))[-1]["type"] == "run.complete"
    [request] = suite.tools.requests
    assert json.loads(request.arguments) == {"at": 5}
