"""Reminders, escalations and expiries of gates happen once each, whoever owns the run and whatever memory refuses."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from headrace.client import Client
from headrace.errors import Overloaded, ProviderUnavailable, StaleLease
from headrace.v1 import agent_pb2, memory_pb2, tools_pb2
from services.runtime.clock import now_ms
from tests.support.orchestrator import ANSWER, Serve, Suite, answer, finish, only, replica, tool, two_replicas
from tests.support.orchestrator.answerers import ACCEPTED, FINANCE, KEYS, LISTED, SILENT, as_user, asking, offer
from tests.support.orchestrator.gate_runs import (
    GateFollower,
    killing_owner,
    read_as,
    reading_run,
    try_answer,
    waiting_run,
)
from tests.support.orchestrator.subagents import HELPER, PARENT, delegate_task, script_replies
from tests.support.orchestrator.watched_memory import Refusal, pass_on
from tests.support.order import Event
from tests.support.waiting import wait_until

WAIT_S = 100.0


async def wait_for_step(follower: GateFollower, kind: str) -> Event:
    async with asyncio.timeout(WAIT_S):
        while True:
            for event in follower.events:
                if event["type"] == "gate.step" and event["step"] == kind:
                    return event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_gate_is_reminded_and_then_escalated_to_other_answerers(kind: str, serve: Serve) -> None:
    rule = FINANCE | {"remind_after_ms": 50, "escalate_after_ms": 100, "escalate_to": ["user:cleo", "role:board"]}
    async with serve(asking(kind), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, rule, kind)
        async with reading_run(suite.client) as (gate, follower, run), as_user(suite.address, "cleo") as cleo:
            step = await wait_for_step(follower, "escalated")
            assert (step["to"], step["gateId"], "by" in step) == (["user:cleo", "role:board"], gate[1], False)
            [listed] = (await cleo.gates()).gates
            assert [*listed.answerers.any_of] == ["role:finance", "user:cleo", "role:board"]
            assert [step_taken.step for step_taken in (await cleo.gate(*gate)).steps] == ["reminded", "escalated"]
            # Four eyes holds: the requester has the role board.
            assert await try_answer(suite.address, "ada", gate) == "PERMISSION_DENIED"
            assert await try_answer(suite.address, "cleo", gate) == ACCEPTED
    events = await run
    assert events[-1]["type"] == "run.complete"
    opened = only(events, "gate.open")
    assert opened["escalateAt"] - opened["remindAt"] == 50
    assert [event["step"] for event in events if event["type"] == "gate.step"] == ["reminded", "escalated"]


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_an_answerer_added_by_an_escalation_in_the_log_is_accepted_or_told_to_retry(
    kind: str, serve: Serve
) -> None:
    """Found by seed 2749 of trials/simulation: a user named by the list of gates got NOT_FOUND."""
    stored, may_continue = asyncio.Event(), asyncio.Event()
    rule = FINANCE | {"remind_after_ms": 50, "escalate_after_ms": 100, "escalate_to": ["user:cleo"]}
    async with serve(asking(kind), ANSWER, keys=KEYS, **LISTED) as suite:

        async def hold_the_answer(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.gate_step.step == "escalated" for line in request.lines):
                stored.set()
                await may_continue.wait()

        suite.memory.after = hold_the_answer
        offer(suite, rule, kind)
        async with reading_run(suite.client) as (gate, _, run), as_user(suite.address, "cleo") as cleo:
            await stored.wait()
            assert [listed_gate.gate_id for listed_gate in (await cleo.gates()).gates] == [gate[1]]
            answer = asyncio.create_task(try_answer(suite.address, "cleo", gate))
            await asyncio.wait([answer], timeout=0.5)
            may_continue.set()
            status = await answer
            while status == "OVERLOADED":
                status = await try_answer(suite.address, "cleo", gate)
            assert status == ACCEPTED
        assert (await run)[-1]["type"] == "run.complete"


async def test_an_early_answer_prevents_the_reminder(serve: Serve) -> None:
    rule = FINANCE | {"remind_after_ms": 60_000}
    async with waiting_run(serve, rule) as (suite, gate, run):
        assert await try_answer(suite.address, "bob", gate) == ACCEPTED
        async with asyncio.timeout(WAIT_S / 2):
            events = await run
    assert [event for event in events if event["type"] == "gate.step"] == []


async def test_a_reminder_that_memory_refuses_is_stored_later_and_the_gate_stays_open(serve: Serve) -> None:
    """Found by seed 198 of trials/simulation: the answer was accepted, and the sub-agent had ended with DISK_FULL."""
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite:
        suite.memory.before = refusal = Refusal("gate_step", ProviderUnavailable("the database is away"))
        offer(suite, FINANCE | {"remind_after_ms": 50})
        async with reading_run(suite.client) as (gate, _, run):
            await wait_until(lambda: not refusal.left)
            assert await try_answer(suite.address, "bob", gate) == ACCEPTED
    events = await run
    assert events[-1]["type"] == "run.complete"
    gate_events = [event.get("step", event["type"]) for event in events if event["type"].startswith("gate.")]
    assert gate_events == ["gate.open", "reminded", "gate.close"]
    assert len(suite.tools.requests) == 1


async def test_a_reminder_due_after_the_gates_expiry_is_not_scheduled(serve: Serve) -> None:
    rule = FINANCE | {"remind_after_ms": 100_000, "escalate_after_ms": 100_001, "escalate_to": ["user:cleo"]}
    async with waiting_run(serve, rule, "form") as (suite, gate, run):
        assert await try_answer(suite.address, "bob", gate) == ACCEPTED
        opened = only(await run, "gate.open")
    assert not {"remindAt", "escalateAt"} & opened.keys()


async def test_reminder_and_escalation_happen_once_when_the_owner_is_killed(serve: Serve) -> None:
    rule = FINANCE | {"remind_after_ms": 50, "escalate_after_ms": 1500, "escalate_to": ["user:cleo"]}
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, rule)
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, follower):
            await wait_for_step(follower, "reminded")
            assert await try_answer(b.address, "cleo", gate) == SILENT
        async with as_user(b.address, "cleo") as cleo, asyncio.timeout(WAIT_S):
            while not (await cleo.gates()).gates:
                await asyncio.sleep(0.02)
        assert await try_answer(b.address, "cleo", gate) == ACCEPTED
        events = await read_as(b.address, "ada", gate[0])
    assert events[-1]["type"] == "run.complete"
    assert [event["step"] for event in events if event["type"] == "gate.step"] == ["reminded", "escalated"]
    assert len(suite.tools.requests) == 1


ASKING_CHILD: dict[str, Any] = PARENT | {"beside": {"helper": HELPER | LISTED}}
DELEGATING = [delegate_task(agentKey="helper") + finish("tool_calls"), answer("done")]


@pytest.mark.parametrize("line", ["gate_open", "gate_close"])
@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_sub_agents_gate_survives_appends_that_memory_refuses(kind: str, line: str, serve: Serve) -> None:
    """Seed 7826 of trials/simulation: a gate_open of a sub-agent that had failed meanwhile was still stored."""
    async with serve(keys=KEYS, **ASKING_CHILD) as suite:
        suite.memory.before = refusal = Refusal(line, *[ProviderUnavailable("the database is away")] * 2)
        offer(suite, {"any_of": ["role:finance"]}, kind)
        script_replies(suite, hello=DELEGATING, find=[asking(kind), answer("it is here")])
        async with reading_run(suite.client) as (gate, _, run):
            assert await try_answer(suite.address, "bob", gate) == ACCEPTED
    events = await run
    assert not refusal.left
    assert only(events, "gate.close")["state"] == "answered"
    assert only(events, "subagent.end")["ok"], "the sub-agent's answer is not lost"
    assert events[-1]["type"] == "run.complete"


async def test_a_sub_agents_gate_expires_while_memory_refuses_its_reminder(serve: Serve) -> None:
    """Seed 15155 of trials/simulation: the sub-agent failed with the reminder, and its gate stayed open."""
    expires_at = 0
    async with serve(keys=KEYS, **ASKING_CHILD) as suite:

        async def refuse_in_time(request: memory_pb2.AppendRequest) -> None:
            nonlocal expires_at
            for event in (line.event.event for line in request.lines):
                expires_at = event.gate_open.expires_at or expires_at
                if event.HasField("gate_step") and now_ms() <= expires_at:
                    await asyncio.sleep((expires_at - now_ms() + 50) / 1000)
                    raise ProviderUnavailable("the database is away")

        suite.memory.before = refuse_in_time
        rule = {"any_of": ["role:finance"], "remind_after_ms": 50}
        suite.tools.tools.append(tool("confirm", "frontend", timeout_ms=300, viewport_key="view", answerers=rule))
        script_replies(suite, hello=DELEGATING, find=[asking("form"), answer("nobody knows")])
        events = await suite.ask()
    gate_events = [event.get("step", event["type"]) for event in events if event["type"].startswith("gate.")]
    assert gate_events == ["gate.open", "reminded", "gate.close"]
    assert only(events, "gate.close")["state"] == "expired"
    assert only(events, "subagent.end")["ok"]


async def answer_gate(client: Client, run_id: str, gate_id: str) -> str:
    return (await client.answer_gate(run_id, gate_id, "1", request_id="r1")).status


async def claim(client: Client, run_id: str, gate_id: str) -> str:
    return (await client.claim_gate(run_id, gate_id, "me")).status


async def delegate(client: Client, run_id: str, gate_id: str) -> str:
    return await client.delegate_gate(run_id, gate_id, ["user:bob"])


async def ask_back(client: Client, run_id: str, gate_id: str) -> str:
    return await client.ask_back(run_id, gate_id, "Why?")


async def wait_for_gate(suite: Suite, deltas: AsyncIterator[agent_pb2.AgentDelta]) -> tuple[str, str]:
    """Wait until a gate is open; return the ids of its run and of the gate."""
    gate_id = ""
    while not gate_id:
        gate_id = (await anext(deltas)).gate_open.gate_id
    return (await suite.client.gates()).gates[0].run_id, gate_id


GATE_CALLS = (answer_gate, claim, delegate, ask_back)


@pytest.mark.parametrize("end", ["run.cancel", "gate.close"])
async def test_gate_calls_are_overloaded_while_the_end_is_being_stored_and_late_after_it(
    end: str, serve: Serve
) -> None:
    """Seed 71539: the run's next owner had the gate open, and accepted an answer that had got `expired`."""
    late_gate_ids: list[str] = []
    async with serve(asking("form"), answer("done"), **LISTED) as suite:
        follower = GateFollower()

        async def answer_late(request: memory_pb2.AppendRequest) -> None:
            if any(line.HasField("run") or line.event.event.HasField("gate_close") for line in request.lines):
                suite.memory.before = pass_on
                run_id, gate_id = await follower.gate
                for call_gate in GATE_CALLS:
                    with pytest.raises(Overloaded, match="the log has gate"):
                        await call_gate(suite.client, run_id, gate_id)
                late_gate_ids.append(gate_id)

        suite.memory.before = answer_late
        timeout_ms = 300 if end == "gate.close" else 100_000
        suite.tools.tools.append(tool("confirm", "frontend", timeout_ms=timeout_ms, viewport_key="view"))
        async with asyncio.TaskGroup() as group:
            run = group.create_task(follower.follow(suite.client))
            run_id, gate_id = await follower.gate
            if end == "run.cancel":
                await suite.client.cancel(run_id)
            events = await run
        assert late_gate_ids == [gate_id]
        assert only(events, end)
        assert [await call_gate(suite.client, run_id, gate_id) for call_gate in GATE_CALLS] == [
            "expired",
            "closed",
            "closed",
            "closed",
        ]


async def test_a_gate_whose_end_a_fail_over_has_taken_back_is_not_reported_as_closed(serve: Serve) -> None:
    async with serve(asking("form"), **LISTED) as suite, replica(suite, "other") as other:
        offer(suite, {"any_of": ["requester"]}, "form")
        async with suite.client.ask("hello", agent_key="react") as deltas:
            run_id, gate_id = await wait_for_gate(suite, deltas)
            for call_gate in GATE_CALLS[1:]:
                suite.memory.taken_back.add(run_id)
                with pytest.raises(Overloaded, match="the log has gate"):
                    await call_gate(other.client, run_id, gate_id)


async def test_two_answers_that_the_log_refuses_are_both_overloaded(serve: Serve) -> None:
    async with serve(asking("form"), **LISTED) as suite:
        suite.memory.before = Refusal("request_submit", *[StaleLease("another process has the run")] * 2)
        offer(suite, {"any_of": ["requester"]}, "form")
        async with suite.client.ask("hello", agent_key="react") as deltas:
            run_id, gate_id = await wait_for_gate(suite, deltas)
            answers = [suite.client.answer_gate(run_id, gate_id, str(number)) for number in range(2)]
            outcomes = await asyncio.gather(*answers, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [Overloaded, Overloaded]
