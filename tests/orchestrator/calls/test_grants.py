"""Grants, approvals that hold for later calls: what they cover, who may grant them, what ends them, and the log."""

import json
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound, PermissionDenied, QueueFull
from headrace.v1 import agent_pb2, memory_pb2, memory_pb2_grpc
from services.orchestrator.people.grants import GRANTS_MAX
from services.runtime.clock import now_ms
from services.runtime.randomness import new_uuid
from services.runtime.rpc.channels import open_channel
from tests.support.orchestrator import ANSWER, Serve, Suite, as_json, call_tool, only, read, tool
from tests.support.orchestrator.answerers import KEYS, as_user
from tests.support.orchestrator.crashes import Crashes, restart
from tests.support.orchestrator.gate_runs import reading_run, wait_for_rules
from tests.support.order import TERMINAL, Event

LISTED = {"toolConfig": {"backends": ["act", "other"]}}
APPROVE = '{"decision": "approve"}'
FOR_RUN = '{"decision": "approve", "grant": "run"}'
FOR_CHAT = '{"decision": "approve", "grant": "chat", "grantMs": 600000}'
TENANT = {"any_of": ["tenant"]}


def act(text: str, call_id: str = "call_1", name: str = "act") -> list[Any]:
    return call_tool(name, json.dumps({"at": text}), call_id=call_id)


def events_of_type(events: list[Event], kind: str) -> list[Event]:
    return [event for event in events if event["type"] == kind]


def offer(suite: Suite, **fields: Any) -> None:
    suite.tools.tools = [tool(name, "backend", **fields) for name in ("act", "other")]


def list_executed(suite: Suite) -> list[str]:
    return [json.loads(request.arguments)["at"] for request in suite.tools.requests]


async def decide(suite: Suite, *answers: tuple[str, str]) -> list[Event]:
    """Run a query in the suite's chat, answering its gates and votes in order with these (user, payload) pairs."""
    events: list[Event] = []
    remaining = [*answers]
    async with suite.client.ask("go", agent_key="react", chat_id=suite.chat_id or None) as run:
        async for delta in run:
            events.append(event := as_json(delta))
            if event["type"] == "run.start":
                suite.chat_id = event["chatId"]
                suite.run_ids.append(event["runId"])
            elif event["type"] == "gate.open":
                status = "voted"
                while status == "voted":
                    name, payload = remaining.pop(0)
                    async with as_user(suite.address, name) as client:
                        status = (await client.answer_gate(suite.run_ids[-1], event["gateId"], payload)).status
                assert status == "accepted"
    assert not remaining, "every answer was used"
    return events


async def test_a_grant_for_the_run_covers_only_later_calls_of_its_tool_in_that_run(serve: Serve) -> None:
    turns = [act("1"), act("2", "call_2"), act("3", "call_3", "other"), ANSWER]
    async with serve(*turns, act("4"), ANSWER, **LISTED) as suite:
        offer(suite, approval="ask")
        events = await decide(suite, ("", FOR_RUN), ("", APPROVE))
        assert list_executed(suite) == ["1", "2", "3"]
        grant_made, grant_used = only(events, "grant.make"), only(events, "grant.use")
        assert [event["toolId"] for event in events_of_type(events, "gate.open")] == ["call_1", "call_3"]
        assert (grant_made["scope"], grant_made["toolName"], grant_made["grounds"]) == (
            "run",
            "act",
            ["the tool's definition"],
        )
        assert (grant_made["madeBy"], "expiresAt" in grant_made) == (["default"], False)
        assert (grant_used["grantId"], grant_used["toolId"], grant_used["toolName"]) == (
            grant_made["grantId"],
            "call_2",
            "act",
        )
        event_types = [event["type"] for event in events if event.get("toolId") == "call_2"]
        assert event_types.index("grant.use") < event_types.index("tool.result")
        assert [*(await suite.client.grants()).grants] == []
        assert await suite.client.revoke_grant(suite.chat_id, grant_made["grantId"]) == "ended"
        later = await decide(suite, ("", APPROVE))
        assert len(events_of_type(later, "gate.open")) == 1, "another run asks again"


async def test_a_grant_for_the_chat_covers_later_runs_until_it_is_revoked(serve: Serve) -> None:
    turns = [turn for text in "1234" for turn in (act(text), ANSWER)]
    async with serve(*turns, keys=KEYS, **LISTED) as suite:
        offer(suite, approval="ask", answerers=TENANT)
        before = now_ms()
        grant_made = only(await decide(suite, ("bob", FOR_CHAT)), "grant.make")
        assert before + 600_000 <= grant_made["expiresAt"] <= now_ms() + 600_000
        assert only(await decide(suite), "grant.use")["grantId"] == grant_made["grantId"]
        first = suite.chat_id
        suite.chat_id = ""
        assert events_of_type(await decide(suite, ("bob", APPROVE)), "grant.use") == [], (
            "the grant does not cover another chat"
        )
        suite.chat_id = first
        async with as_user(suite.address, "bob") as bob, as_user(suite.address, "cleo") as cleo:
            [grant] = (await bob.grants(chat_id=first)).grants
            assert (grant.grant_id, grant.requester, [*grant.made_by]) == (grant_made["grantId"], "ada", ["bob"])
            assert [*(await cleo.grants()).grants] == []
            with pytest.raises(NotFound):
                await cleo.revoke_grant(first, grant.grant_id)
            with pytest.raises(PermissionDenied):
                await bob.grants(scope="tenant")
            assert await bob.revoke_grant(first, grant.grant_id) == "revoked"
        events = await decide(suite, ("bob", APPROVE))
        assert events_of_type(events, "grant.use") == []
        assert list_executed(suite) == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("field", "value"),
    [("description", "Now it also pays."), ("parameters", '{"type": "object", "title": "x"}'), ("effect", "once")],
)
async def test_a_grant_ends_when_the_definition_of_its_tool_changes(serve: Serve, field: str, value: str) -> None:
    turns = [turn for text in "123" for turn in (act(text), ANSWER)]
    async with serve(*turns, **LISTED) as suite:
        offer(suite, approval="ask", effect="read")
        await decide(suite, ("", FOR_CHAT))
        assert events_of_type(await decide(suite), "grant.use")
        for offered in suite.tools.tools:
            setattr(offered, field, value)
        assert events_of_type(await decide(suite, ("", APPROVE)), "grant.use") == []


RULES = """
tools:
  act:
    - {pattern: "^deny", then: deny}
    - {pattern: "x", argument: at, then: ask}
    - {pattern: "y", then: ask, answerers: {anyOf: [tenant]}}
"""


async def test_a_grant_covers_neither_other_grounds_higher_risk_other_people_nor_denied_calls(
    serve: Serve, tmp_path: Path
) -> None:
    texts = ["x", "sudo x", "y", "deny x", "x again", "x once more"]
    turns = [act(text, f"call_{number}") for number, text in enumerate(texts)]
    (tmp_path / "approvals.yaml").write_text(RULES)
    async with serve(*turns[:5], ANSWER, turns[5], ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite)
        events = await decide(suite, ("ada", FOR_CHAT), ("ada", APPROVE), ("ada", APPROVE))
        assert [event["toolId"] for event in events_of_type(events, "gate.open")] == ["call_0", "call_1", "call_2"]
        assert only(events, "grant.use")["toolId"] == "call_4"
        assert only(events, "grant.make")["grounds"] == ["matches 'x' in argument 'at'"]
        assert list_executed(suite) == ["x", "sudo x", "y", "x again"]
        (tmp_path / "approvals.yaml").write_text(RULES.replace("ask}", "ask, answerers: {anyOf: ['user:bob']}}"))
        await wait_for_rules()
        assert events_of_type(await decide(suite, ("bob", APPROVE)), "grant.use") == [], (
            "the rule now names other people"
        )


async def test_a_grant_for_a_risk_does_not_cover_a_call_with_a_second_risk(serve: Serve, tmp_path: Path) -> None:
    texts = ["sudo ls", "sudo rm -r x", "sudo pwd"]
    turns = [act(text, f"call_{number}") for number, text in enumerate(texts)]
    (tmp_path / "approvals.yaml").write_text("{}")
    async with serve(*turns, ANSWER, **LISTED) as suite:
        offer(suite)
        events = await decide(suite, ("", FOR_RUN), ("", APPROVE))
        assert [event["toolId"] for event in events_of_type(events, "gate.open")] == ["call_0", "call_1"]
        assert only(events, "grant.make")["grounds"] == ["high risk: runs as another user"]
        assert only(events, "grant.use")["toolId"] == "call_2"


VOTES = {
    "both for the chat": (FOR_CHAT, FOR_CHAT, "chat"),
    "one for the run": (FOR_CHAT, FOR_RUN, "run"),
    "the first for its call": (APPROVE, FOR_CHAT, ""),
    "the last for its call": (FOR_CHAT, APPROVE, ""),
}


@pytest.mark.parametrize("case", VOTES)
async def test_where_several_must_approve_a_grant_needs_all_of_them(case: str, serve: Serve) -> None:
    first, second, scope = VOTES[case]
    async with serve(act("1"), act("2", "call_2"), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, approval="ask", answerers={"any_of": ["tenant"], "not_requester": True, "count": 2})
        restart = [] if scope else [("bob", APPROVE), ("cleo", APPROVE)]
        events = await decide(suite, ("bob", first), ("cleo", second), *restart)
        grants_made = [(event["scope"], event["madeBy"]) for event in events_of_type(events, "grant.make")]
        assert grants_made == ([(scope, ["bob", "cleo"])] if scope else [])
        assert len(events_of_type(events, "grant.use")) == len(grants_made)
        assert list_executed(suite) == ["1", "2"]


async def test_a_delegate_cannot_grant_and_an_invalid_grant_is_refused(serve: Serve) -> None:
    async with serve(act("1"), ANSWER, keys=KEYS, **LISTED) as suite, as_user(suite.address, "bob") as bob:
        offer(suite, approval="ask", answerers={"any_of": ["role:finance"]})
        async with reading_run(suite.client) as (place, _, run), as_user(suite.address, "cleo") as cleo:
            assert (await bob.gate(*place)).is_grantable
            await bob.delegate_gate(*place, ["user:cleo"])
            with pytest.raises(PermissionDenied, match="grant nothing for later calls"):
                await cleo.answer_gate(*place, FOR_CHAT)
            for payload, problem in (
                ('{"decision": "reject", "grant": "run"}', "payload.grant: goes with decision approve"),
                ('{"decision": "approve", "grant": "tenant"}', "payload: must be"),
                ('{"decision": "approve", "grantMs": 60000}', "payload.grantMs: goes with grant chat"),
                ('{"decision": "approve", "grant": "chat", "grantMs": 59999}', "payload.grantMs: must be 60,000"),
            ):
                with pytest.raises(InvalidRequest, match=problem):
                    await bob.answer_gate(*place, payload)
            reply = await bob.answer_gate(*place, FOR_RUN, request_id="r1")
            assert reply.grant_id == (await bob.answer_gate(*place, FOR_RUN, request_id="r1")).grant_id != ""
        grant_made = only(await run, "grant.make")
        assert (await bob.answer_gate(*place, FOR_RUN, request_id="r1")).grant_id == grant_made["grantId"]


async def test_after_a_takeover_a_used_grant_still_covers_its_call_when_revoked(serve: Serve) -> None:
    async with serve(act("1"), act("2", "call_2"), ANSWER, **LISTED) as suite:
        offer(suite, approval="ask", effect="read")
        crashes = Crashes(suite)

        async def die(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.HasField("grant_use") for line in request.lines):
                crashes.kill(request.run_id)

        suite.memory.after = die
        events_before_crash = await decide(suite, ("", FOR_CHAT))
        assert events_before_crash[-1]["type"] not in TERMINAL
        [grant] = (await suite.client.grants()).grants
        assert await suite.client.revoke_grant(suite.chat_id, grant.grant_id) == "revoked"
        await suite.stop()
        async with restart(suite) as client:
            events = await read(client, suite.run_ids[0])
        assert events[-1]["type"] == "run.complete"
        # Nobody was asked a second time.
        assert (len(events_of_type(events, "gate.open")), len(events_of_type(events, "grant.use"))) == (1, 1)


async def test_a_chat_has_a_maximum_of_active_grants(serve: Serve) -> None:
    async with serve(act("1"), ANSWER, **LISTED) as suite:
        offer(suite, approval="ask")
        async with reading_run(suite.client) as (gate, follower, _):
            for number in range(GRANTS_MAX):
                await put_grant(suite, only(follower.events, "run.start")["chatId"], gate[0], f"g_{number}")
            with pytest.raises(QueueFull, match="64 grants of this chat are in force"):
                await suite.client.answer_gate(*gate, FOR_CHAT)
            assert (await suite.client.answer_gate(*gate, APPROVE)).status == "accepted"
        assert list_executed(suite) == ["1"]


async def put_grant(suite: Suite, chat_id: str, run_id: str, grant_id: str) -> None:
    """Store a grant in the log that covers no call of these tests."""
    grant = agent_pb2.GrantMake(grant_id=grant_id, scope="chat", made_by=["default"], expires_at=now_ms() + 600_000)
    event = agent_pb2.AgentDelta(timestamp=now_ms(), grant_make=grant)
    line = memory_pb2.LogLine(event=memory_pb2.EventLine(event=event))
    async with open_channel(suite.config.memory_address) as channel:
        stub = memory_pb2_grpc.MemoryServiceStub(channel)
        await stub.Append(memory_pb2.AppendRequest(chat_id=chat_id, run_id=run_id, request_id=new_uuid(), lines=[line]))
