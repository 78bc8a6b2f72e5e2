"""A gate that nobody answers reminds, and lets others answer too: each once, whoever owns the run."""

from __future__ import annotations

import asyncio

import pytest

from headrace.errors import ProviderUnavailable
from headrace.v1 import memory_pb2, tools_pb2
from tests.support.orchestrator import ANSWER, Serve, only, two_replicas
from tests.support.orchestrator.answerers import ACCEPTED, FINANCE, KEYS, LISTED, SILENT, as_user, asking, offer
from tests.support.orchestrator.gate_runs import Asked, killing_owner, read_as, reading_run, try_answer, waiting_run
from tests.support.order import Event

WAIT_S = 100.0


async def wait_for_step(asked: Asked, kind: str) -> Event:
    async with asyncio.timeout(WAIT_S):
        while True:
            for event in asked.events:
                if event["type"] == "gate.step" and event["step"] == kind:
                    return event
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_a_gate_reminds_and_then_others_may_answer_too(kind: str, serve: Serve) -> None:
    rule = FINANCE | {"remind_after_ms": 50, "escalate_after_ms": 100, "escalate_to": ["user:cleo", "role:board"]}
    async with serve(asking(kind), ANSWER, keys=KEYS, **LISTED) as suite:
        offer(suite, rule, kind)
        async with reading_run(suite.client) as (gate, asked, run), as_user(suite.address, "cleo") as cleo:
            step = await wait_for_step(asked, "escalated")
            assert (step["to"], step["gateId"], "by" in step) == (["user:cleo", "role:board"], gate[1], False)
            [listed] = (await cleo.gates()).gates
            assert [*listed.answerers.any_of] == ["role:finance", "user:cleo", "role:board"]
            assert [one.step for one in (await cleo.gate(*gate)).steps] == ["reminded", "escalated"]
            # Four eyes holds: the requester has the role board.
            assert await try_answer(suite.address, "ada", gate) == "PERMISSION_DENIED"
            assert await try_answer(suite.address, "cleo", gate) == ACCEPTED
    events = await run
    assert events[-1]["type"] == "run.complete"
    opened = only(events, "gate.open")
    assert opened["escalateAt"] - opened["remindAt"] == 50
    assert [event["step"] for event in events if event["type"] == "gate.step"] == ["reminded", "escalated"]


@pytest.mark.parametrize("kind", ["approval", "form"])
async def test_who_reads_in_the_log_that_a_gate_is_escalated_may_answer_before_the_runs_owner_is_told(
    kind: str, serve: Serve
) -> None:
    """Found by seed 2749 of trials/simulation: who the list of gates named was told NOT_FOUND."""
    stored, told = asyncio.Event(), asyncio.Event()
    rule = FINANCE | {"remind_after_ms": 50, "escalate_after_ms": 100, "escalate_to": ["user:cleo"]}
    async with serve(asking(kind), ANSWER, keys=KEYS, **LISTED) as suite:

        async def hold_the_answer(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.gate_step.step == "escalated" for line in request.lines):
                stored.set()
                await told.wait()

        suite.memory.after = hold_the_answer
        offer(suite, rule, kind)
        async with reading_run(suite.client) as (gate, _, run), as_user(suite.address, "cleo") as cleo:
            await stored.wait()
            assert [one.gate_id for one in (await cleo.gates()).gates] == [gate[1]]
            answer = asyncio.create_task(try_answer(suite.address, "cleo", gate))
            await asyncio.wait([answer], timeout=0.5)
            told.set()
            status = await answer
            while status == "OVERLOADED":
                status = await try_answer(suite.address, "cleo", gate)
            assert status == ACCEPTED
        assert (await run)[-1]["type"] == "run.complete"


async def test_an_answer_in_time_comes_before_a_reminder(serve: Serve) -> None:
    rule = FINANCE | {"remind_after_ms": 60_000}
    async with waiting_run(serve, rule) as (suite, gate, run):
        assert await try_answer(suite.address, "bob", gate) == ACCEPTED
        async with asyncio.timeout(WAIT_S / 2):
            events = await run
    assert [event for event in events if event["type"] == "gate.step"] == []


async def test_a_reminder_that_memory_does_not_take_is_stored_later_and_ends_no_wait(serve: Serve) -> None:
    """Found by seed 198 of trials/simulation: the answer was accepted, and the sub-agent had ended with DISK_FULL."""
    refused = asyncio.Event()
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite:

        async def refuse_once(request: memory_pb2.AppendRequest) -> None:
            if any(line.event.event.gate_step.step == "reminded" for line in request.lines) and not refused.is_set():
                refused.set()
                raise ProviderUnavailable("the database is away")

        suite.memory.before = refuse_once
        offer(suite, FINANCE | {"remind_after_ms": 50})
        async with reading_run(suite.client) as (gate, _, run):
            await refused.wait()
            assert await try_answer(suite.address, "bob", gate) == ACCEPTED
    events = await run
    assert events[-1]["type"] == "run.complete"
    told = [event.get("step", event["type"]) for event in events if event["type"].startswith("gate.")]
    assert told == ["gate.open", "reminded", "gate.close"]
    assert len(suite.tools.requests) == 1


async def test_what_is_due_after_the_gates_end_does_not_happen(serve: Serve) -> None:
    rule = FINANCE | {"remind_after_ms": 100_000, "escalate_after_ms": 100_001, "escalate_to": ["user:cleo"]}
    async with waiting_run(serve, rule, "form") as (suite, gate, run):
        assert await try_answer(suite.address, "bob", gate) == ACCEPTED
        opened = only(await run, "gate.open")
    assert not {"remindAt", "escalateAt"} & opened.keys()


async def test_both_happen_once_when_the_owner_is_killed(serve: Serve) -> None:
    rule = FINANCE | {"remind_after_ms": 50, "escalate_after_ms": 1500, "escalate_to": ["user:cleo"]}
    async with serve(asking("approval"), ANSWER, keys=KEYS, **LISTED) as suite, two_replicas(suite) as (a, b):
        offer(suite, rule)
        suite.tools.effects = [tools_pb2.CheckEffectResponse(state="not_done")]
        async with killing_owner(suite, a) as (gate, asked):
            await wait_for_step(asked, "reminded")
            assert await try_answer(b.address, "cleo", gate) == SILENT
        async with as_user(b.address, "cleo") as cleo, asyncio.timeout(WAIT_S):
            while not (await cleo.gates()).gates:
                await asyncio.sleep(0.02)
        assert await try_answer(b.address, "cleo", gate) == ACCEPTED
        events = await read_as(b.address, "ada", gate[0])
    assert events[-1]["type"] == "run.complete"
    assert [event["step"] for event in events if event["type"] == "gate.step"] == ["reminded", "escalated"]
    assert len(suite.tools.requests) == 1
