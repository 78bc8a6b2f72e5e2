"""Each kind of gate, with everything that people and crashes may do to it, gets one decision. The log names its true
author, and the run continues once."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from headrace.client import Client
from headrace.errors import Claimed, HeadraceError, Unauthenticated
from tests.support.issuing import keys_file
from tests.support.orchestrator import Serve, Suite, as_json, call, content, run_of, tool, two_replicas
from tests.support.orchestrator.answerers import APPROVE, as_user
from tests.support.orchestrator.crashes import Crashes, assert_whole, restart
from tests.support.orchestrator.gate_runs import killing_owner, read_as, reading_run, try_answer
from tests.support.orchestrator.parked import ParkingCounter
from tests.support.orchestrator.recorded_runs import World
from tests.support.order import TERMINAL, Event
from tests.support.tiers import check_each

KEYS = {
    "ada": "acme/ada",
    "bob": "acme/bob",
    "dan": "acme/dan",
    "cleo": "acme/cleo",
    "reader": "acme/bob clerks ask",
    "stranger": "globex/bob",
}
"""Users by key; each key is the name of its holder. ada starts the runs."""

RULE = {"any_of": ["user:bob", "user:dan", "user:ada"], "not_requester": True}

TOOLS = {"approval": "act", "form": "confirm", "question": "ask_human"}

ANSWERS = {"approval": APPROVE, "form": '{"size": 1}', "question": '"red"'}

AUTHORS = {"approval": "bob", "form": "bob", "question": "ada"}
"""Who answers a gate of each kind by default."""

LISTED = {"toolConfig": {"backends": ["act"], "frontends": ["confirm", "ask_human"]}}

PARKING = {"live": -1.0, "parked": 0.0}
"""Seconds until a waiting run is parked; -1: never."""

EXPIRES_MS = {"live": 500, "parked": 2000}


@dataclass(frozen=True)
class Waiting:
    """A run of ada's that waits at a gate."""

    address: str
    kind: str
    place: tuple[str, str]
    folder: Path

    async def answer(self, name: str, payload: str = "", **fields: Any) -> str:
        """Answer as `name`; return the status, or the error's reason."""
        return await try_answer(self.address, name, self.place, payload or ANSWERS[self.kind], **fields)


Act: TypeAlias = Callable[[Waiting], Awaitable[str]]
"""Does something to a gate; returns the user whose decision counts, or "" for nobody."""


async def answer(waiting: Waiting) -> str:
    assert await waiting.answer("bob") == "accepted"
    return "bob"


async def edit(waiting: Waiting) -> str:
    assert await waiting.answer("bob", '{"decision": "edit", "arguments": {"at": 9}}') == "accepted"
    return "bob"


async def reject(waiting: Waiting) -> str:
    assert await waiting.answer("bob", '{"decision": "reject"}') == "accepted"
    return "bob"


async def expire(waiting: Waiting) -> str:
    return ""


async def cancel(waiting: Waiting) -> str:
    async with as_user(waiting.address, "ada") as ada:
        await ada.cancel(waiting.place[0])
    return ""


async def delegate(waiting: Waiting) -> str:
    assert await waiting.answer("cleo") == "NOT_FOUND"
    async with as_user(waiting.address, "bob") as bob:
        assert await bob.delegate_gate(*waiting.place, ["user:cleo"]) == "delegated"
    assert await waiting.answer("cleo") == "accepted"
    return "cleo"


async def lose_claim(waiting: Waiting) -> str:
    async with as_user(waiting.address, "bob") as bob, as_user(waiting.address, "dan") as dan:
        await bob.claim_gate(*waiting.place, "tab", lease_ms=1000)
        while True:
            try:
                await dan.claim_gate(*waiting.place, "tab")
                break
            except Claimed:
                await asyncio.sleep(0.05)
    assert await waiting.answer("bob", holder="tab") == "CLAIMED"
    assert await waiting.answer("dan", holder="tab") == "accepted"
    return "dan"


async def answer_twice(waiting: Waiting) -> str:
    statuses = await asyncio.gather(waiting.answer("bob", request_id="r"), waiting.answer("dan", request_id="r"))
    assert sorted(statuses)[0] == "accepted"
    assert sorted(statuses)[1] in ("duplicate", "unmatched")
    return ("bob", "dan")[statuses.index("accepted")]


async def answer_wrongly(waiting: Waiting) -> str:
    statuses = [await waiting.answer(name) for name in ("stranger", "cleo", "reader")]
    assert statuses == ["NOT_FOUND", "NOT_FOUND", "PERMISSION_DENIED"]
    assert await waiting.answer("dan") == "accepted"
    return "dan"


async def answer_as_requester(waiting: Waiting) -> str:
    assert await waiting.answer("ada") == "PERMISSION_DENIED"
    return await answer(waiting)


async def is_known(client: Client) -> bool:
    try:
        await client.gates()
    except Unauthenticated:
        return False
    return True


async def withdraw_key(waiting: Waiting) -> str:
    """Withdraw a key between its holder's claim and answer."""
    async with as_user(waiting.address, "bob") as bob:
        await bob.claim_gate(*waiting.place, "tab", lease_ms=1000)
        keys_file(waiting.folder, **{name: user for name, user in KEYS.items() if name != "bob"})
        while await is_known(bob):
            await asyncio.sleep(0.05)
    assert await waiting.answer("bob", holder="tab") == "UNAUTHENTICATED"
    while (status := await waiting.answer("dan")) == "CLAIMED":  # A claim lasts until its lease is over.
        await asyncio.sleep(0.05)
    assert status == "accepted"
    return "dan"


CASES: dict[str, Act] = {
    "answered": answer,
    "edited": edit,
    "rejected": reject,
    "expired": expire,
    "cancelled": cancel,
    "delegated": delegate,
    "a claim is lost": lose_claim,
    "answered twice": answer_twice,
    "a wrong person": answer_wrongly,
    "the requester under four eyes": answer_as_requester,
    "a key is withdrawn": withdraw_key,
}

NOT_RUN = ("rejected", "expired", "cancelled")

LEFT_OUT = {
    "approval": (),
    "form": ("edited", "rejected"),
    "question": ("edited", "rejected", "expired", "the requester under four eyes"),
}
"""A question has no rule, and its timeout is always five minutes."""

ROWS = check_each(
    ((kind, case, how) for how in PARKING for kind in TOOLS for case in CASES if case not in LEFT_OUT[kind]), each=2
)


def set_up_gate(suite: Suite, kind: str, timeout_ms: int = 100_000, calls: int = 1) -> World:
    arguments = '{"at": 1}' if kind != "question" else '{"question": "which?", "choices": ["red", "blue"]}'
    turns = [call(TOOLS[kind], arguments, call_id=f"call_{number}") for number in range(1, calls + 1)]
    world = World(suite, [*turns, content("All good.")])
    suite.tools.tools = [
        tool("act", "backend", approval="ask", answerers=RULE, effect="once"),
        tool("confirm", "frontend", timeout_ms=timeout_ms, viewport_key="view", answerers=RULE),
    ]
    return world


async def make_waiting(address: str, kind: str, place: tuple[str, str], folder: Path) -> Waiting:
    """Return a gate that bob and dan may answer; a question is delegated to them by its requester."""
    if kind == "question":
        async with as_user(address, "ada") as ada:
            assert await ada.delegate_gate(*place, ["user:bob", "user:dan"]) == "delegated"
    return Waiting(address, kind, place, folder)


async def check_decision(
    waiting: Waiting, world: World, events: list[Event], by: str, *, case: str = "answered"
) -> None:
    """Check the events and the log of an ended run against the expected decision of its gate."""
    run_id, gate_id = waiting.place
    state = {"expired": "expired", "cancelled": "cancelled"}.get(case, "answered")
    submits = [event for event in events if event["type"] == "request.submit"]
    assert [(entry["toolId"], entry["by"], entry["credential"][:8]) for entry in submits] == (
        [(gate_id, by, "api_key:")] if by else []
    )
    closes = [event for event in events if event["type"] == "gate.close"]
    assert [(entry["gateId"], entry["state"], entry.get("answeredBy", "")) for entry in closes] == (
        [(gate_id, state, by)] if state != "cancelled" else []
    )
    if waiting.kind == "approval" and state != "cancelled":
        decision = {"edited": "edit", "rejected": "reject", "expired": "reject"}.get(case, "approve")
        answers = [event for event in events if event["type"] == "approval.answer"]
        assert [(entry["decision"], entry.get("by", "")) for entry in answers] == [(decision, by)]
        assert sum(world.runs.values()) == (0 if case in NOT_RUN else 1)
    ends = [event["type"] for event in events if event["type"] in TERMINAL]
    assert ends == ["run.cancel" if state == "cancelled" else "run.complete"]
    async with as_user(waiting.address, "ada") as ada:
        gate = await ada.gate(run_id, gate_id)
    assert (gate.state, gate.answered_by) == (state, by)
    path = waiting.folder / "data" / "chats" / f"{gate.chat_id}.json"
    assert_whole([json.loads(line) for line in path.read_text().splitlines()], run_id)


@pytest.mark.parametrize(("kind", "case", "how"), ROWS)
async def test_any_action_on_a_gate_leaves_one_decision(
    kind: str, case: str, how: str, serve: Serve, tmp_path: Path
) -> None:
    expires_ms = EXPIRES_MS[how]
    if case == "expired":
        (tmp_path / "approvals.yaml").write_text(f"answerTimeoutMs: {expires_ms}\n")
    async with serve(keys=KEYS, park_after_s=PARKING[how], **LISTED) as suite:
        world, parked = set_up_gate(suite, kind, expires_ms if case == "expired" else 100_000), ParkingCounter()
        async with reading_run(suite.client) as (gate, _, run):
            waiting = await make_waiting(suite.address, kind, gate, tmp_path)
            if how == "parked":
                await parked.wait()
            by = await CASES[case](waiting)
        await check_decision(waiting, world, await run, by, case=case)
        assert await waiting.answer("dan", request_id="late") in ("duplicate", "expired", "unmatched")


@pytest.mark.parametrize("how", PARKING)
@pytest.mark.parametrize("kind", TOOLS)
async def test_two_answers_after_a_takeover_leave_one_decision(
    kind: str, how: str, serve: Serve, tmp_path: Path
) -> None:
    async with serve(keys=KEYS, park_after_s=PARKING[how], **LISTED) as suite, two_replicas(suite) as (a, b):
        world, parked = set_up_gate(suite, kind), ParkingCounter()
        async with killing_owner(suite, a) as (place, _):
            if how == "parked":
                await parked.wait()
        waiting = await make_waiting(b.address, kind, place, tmp_path)
        if kind != "question":
            assert await waiting.answer("ada") == "PERMISSION_DENIED"
        by = await answer_twice(waiting)
        await check_decision(waiting, world, await read_as(b.address, "ada", place[0]), by)


async def follow_and_answer(
    suite: Suite, client: Client, kind: str, folder: Path, run_id: str, payload: str = "", *, is_parked: bool = False
) -> list[Event]:
    """Read a new run, or the run with this id, and answer its gate, always with the same request id; with `is_parked`,
    wait until the run is parked first."""
    events: list[Event] = []
    parked = ParkingCounter()
    async with asyncio.TaskGroup() as group:
        stream = client.attach(run_id, 0) if run_id else client.ask("hello", agent_key="react")
        with suppress(HeadraceError):
            async with stream as deltas:
                async for delta in deltas:
                    events.append(event := as_json(delta))
                    if event["type"] == "gate.open":
                        if is_parked:
                            await parked.wait()
                        place = run_id or run_of(events), event["gateId"]
                        waiting = Waiting(suite.address, kind, place, folder)
                        group.create_task(waiting.answer(AUTHORS[kind], payload, request_id="r1"))
    return events


async def each_death_of_an_owner(
    suite: Suite, kind: str, folder: Path, payload: str = "", *, calls: int = 1, is_parked: bool = False
) -> AsyncGenerator[tuple[World, list[Event]]]:
    """Yield runs whose owners die at each line of the log in turn, as read from the next owner, which is still running.
    The first run is not killed, and shows how many lines such a run has."""
    await suite.stop()
    crashes, appends, line_number = Crashes(suite), 1, 0
    while line_number < appends:
        world = set_up_gate(suite, kind, calls=calls)
        crashes.kill_at(line_number or -1)
        async with restart(suite), as_user(suite.address, "ada") as ada:
            events = await follow_and_answer(suite, ada, kind, folder, "", payload, is_parked=is_parked)
            run_id = run_of(events)
            if not line_number:
                appends = crashes.appends[run_id]
                yield world, events
        crashes.kill_at(-1)
        if line_number:
            assert events[-1]["type"] not in TERMINAL
            async with restart(suite), as_user(suite.address, "ada") as ada:
                yield world, await follow_and_answer(suite, ada, kind, folder, run_id, payload)
        line_number += 1


@pytest.mark.parametrize(("kind", "how"), check_each(((kind, how) for how in PARKING for kind in TOOLS), each=4))
async def test_an_owner_killed_at_any_line_leaves_one_decision(
    kind: str, how: str, serve: Serve, tmp_path: Path
) -> None:
    async with serve(keys=KEYS, park_after_s=PARKING[how], **LISTED) as suite:
        async for world, whole in each_death_of_an_owner(suite, kind, tmp_path, is_parked=how == "parked"):
            gate_id = next(event["gateId"] for event in whole if event["type"] == "gate.open")
            waiting = Waiting(suite.address, kind, (whole[-1]["runId"], gate_id), tmp_path)
            assert await waiting.answer(AUTHORS[kind], request_id="r1") == "accepted", (
                "a repetition gets the decision again"
            )
            await check_decision(waiting, world, whole, AUTHORS[kind])


@pytest.mark.parametrize("scope", ["run", pytest.param("chat", marks=pytest.mark.nightly)])
async def test_an_owner_killed_at_any_line_leaves_one_grant_that_covers_the_next_call(
    scope: str, serve: Serve, tmp_path: Path
) -> None:
    """The grant of the first call's approval covers the second call, which runs once without asking."""
    payload = json.dumps({"decision": "approve", "grant": scope})
    async with serve(keys=KEYS, **LISTED) as suite:
        async for world, events in each_death_of_an_owner(suite, "approval", tmp_path, payload, calls=2):
            assert events[-1]["type"] == "run.complete"
            counts = Counter(event["type"] for event in events)
            expected_once = ("gate.open", "request.submit", "grant.make", "grant.use", "approval.answer")
            assert [counts[kind] for kind in expected_once] == [1] * 5
            assert sorted(world.runs.values()) == [1, 1]
