"""Users at gates: the run's reader answers by Submit, a second client finds the gate in the list."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import grpc

from headrace.errors import HeadraceError
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, gates_pb2
from services.runtime.randomness import RANDOM, new_uuid
from trials.simulation.outside.outside import ASKED_TOO, WORDS
from trials.simulation.people.asked import GateTry

if TYPE_CHECKING:
    from random import Random

    from tests.support.order import Event
    from trials.simulation.people.person import Person

SOON_S, LATE_S = (0.0, 3.0), (10.0, 40.0)
"""Ranges of answer times; gates close within the later one."""

LOOK_S = (1.0, 4.0)
"""Time between two looks of the second client at the list."""

SHARE = 0.5
"""Share of the gates that a second client answers."""

BEFORE = ("", "", "", "claim", "claim and leave", "delegate", "ask back")
"""Actions of a second client before it answers."""

LEASE_MS = (1000, 8000)
"""Range of the duration of claims."""

AGAIN_S, CALL_S = 0.5, 20.0

CHANGED = "INVALID_REQUEST"
"""Status of an approval that does not name the arguments after a vote has changed them."""

STEP_REFUSALS = ("CLAIMED", "NOT_FOUND", "PERMISSION_DENIED")
"""Reasons why an action at a gate is refused: another client's claim, or the gate's rule."""

REPEATS = "run it again"
"""Part of the reason of a gate for repeating a call whose first run may have had its effect."""


async def answer_gate(user: Person, run_id: str, event: Event, how: str) -> None:
    """Answer a gate in the way `how`, one of ANSWERS, and record the result."""
    random, gate_id = RANDOM.get(), event["gateId"]
    if how == "never":
        return
    await asyncio.sleep(random.uniform(*(LATE_S if how == "late" else SOON_S)))
    if REPEATS in event.get("reason", ""):
        how = random.choice(("approve", "reject", "reject"))
    kind, request_id = event["kind"], new_uuid()
    first = _Answer(run_id, gate_id, request_id, _make_payload(kind, how, random))
    if how == "twice":
        second = _Answer(run_id, gate_id, new_uuid(), _make_payload(kind, "reject", random))
        await asyncio.gather(_submit(user, first), _submit(user, second))
    else:
        await _submit(user, first)
        if how == "repeat":
            await _submit(user, first)


async def look_for_gates(user: Person, until: asyncio.Event) -> None:
    """Answer some of the listed gates until all questions are done."""
    random = RANDOM.get()
    seen: set[tuple[str, str]] = set()
    while not until.is_set():
        await asyncio.sleep(random.uniform(*LOOK_S))
        for gate in await _list_gates(user):
            place = gate.run_id, gate.gate_id
            if place not in seen:
                seen.add(place)
                if random.random() < SHARE:
                    await _handle(user, gate, random)


async def _handle(user: Person, gate: gates_pb2.Gate, random: Random) -> None:
    """Claim, delegate or question a gate, and answer it; some of these steps may be left out."""
    place, before = (gate.run_id, gate.gate_id), random.choice(BEFORE)
    holder, request_id = "", new_uuid()
    ids = {"run_id": gate.run_id, "gate_id": gate.gate_id}
    match before:
        case "claim" | "claim and leave":
            holder = new_uuid()
            claim = gates_pb2.ClaimGateRequest(**ids, holder=holder, lease_ms=random.randint(*LEASE_MS))
            await _try_step(user, before, lambda: user.gates.ClaimGate(claim, timeout=CALL_S))
            await asyncio.sleep(random.uniform(*SOON_S))
        case "delegate":
            passed = gates_pb2.DelegateGateRequest(**ids, to=[f"user:{ASKED_TOO}"], request_id=request_id)
            await _try_step(user, before, lambda: user.gates.DelegateGate(passed, timeout=CALL_S))
        case "ask back":
            question = gates_pb2.AskBackRequest(**ids, note="why?", request_id=request_id)
            await _try_step(user, before, lambda: user.gates.AskBack(question, timeout=CALL_S))
        case _:
            pass
    if before == "claim and leave":
        release = gates_pb2.ReleaseGateRequest(**ids, holder=holder)
        await _try_step(user, "release", lambda: user.gates.ReleaseGate(release, timeout=CALL_S))
        return
    how = random.choice(("approve", "approve", "edit", "reject"))
    answer = _Answer(*place, new_uuid(), _make_payload(gate.kind, how, random), holder)
    if await _answer(user, answer) == CHANGED:
        await _approve_changed(user, answer)


async def _approve_changed(user: Person, answer: _Answer) -> None:
    """Approve the arguments that a vote has since given the call."""
    request = gates_pb2.GetGateRequest(run_id=answer.run_id, gate_id=answer.gate_id)
    found = await user.try_until_answered(lambda: user.gates.GetGate(request, timeout=CALL_S))
    if found is not None and found.gate.arguments:
        payload = json.dumps({"decision": "edit", "arguments": json.loads(found.gate.arguments)})
        await _answer(user, replace(answer, request_id=new_uuid(), payload=payload))


async def _try_step(user: Person, what: str, call: Any) -> None:
    """Try an action at a gate; others may have been faster, or may have claimed it."""
    answer = await user.try_until_answered(call)
    if answer is None and user.refusal not in STEP_REFUSALS:
        user.problems.append(f"{user.name}: {what} was refused: {user.refusal}")
    user.story.tell(f"{user.name} {what}: {answer or user.refusal}", count=f"gate {what}")


@dataclass(frozen=True, slots=True)
class _Answer:
    run_id: str
    gate_id: str
    request_id: str
    payload: str
    holder: str = ""


def _make_payload(kind: str, how: str, random: Random) -> str:
    given = {"tree": random.choice(WORDS), "number": random.randrange(1000)}
    if kind != "approval":
        return json.dumps(given)
    if how == "edit":
        return json.dumps({"decision": "edit", "arguments": given})
    return json.dumps({"decision": "reject" if how == "reject" else "approve"})


async def _submit(user: Person, answer: _Answer) -> None:
    request = agent_pb2.SubmitRequest(run_id=answer.run_id, payload=answer.payload, request_id=answer.request_id)
    if answer.gate_id.startswith("approval"):
        request.approval_id = answer.gate_id
    else:
        request.tool_id = answer.gate_id
    await _try(user, answer, lambda: user.agents.Submit(request, timeout=CALL_S))


async def _answer(user: Person, answer: _Answer) -> str:
    request = gates_pb2.AnswerGateRequest(
        run_id=answer.run_id,
        gate_id=answer.gate_id,
        payload=answer.payload,
        request_id=answer.request_id,
        holder=answer.holder or None,
    )
    return await _try(user, answer, lambda: user.gates.AnswerGate(request, timeout=CALL_S))


async def _list_gates(user: Person) -> list[gates_pb2.Gate]:
    try:
        with rpc_errors():
            return list((await user.gates.ListGates(gates_pb2.ListGatesRequest(), timeout=CALL_S)).gates)
    except (HeadraceError, grpc.aio.AioRpcError):
        return []


async def _try(user: Person, answer: _Answer, call: Any) -> str:
    status = ""
    while not status:
        try:
            with rpc_errors():
                status = (await call()).status
        except HeadraceError as error:
            if not (error.retriable or error.code is grpc.StatusCode.UNAVAILABLE):
                status = error.reason
        except grpc.aio.AioRpcError:
            pass
        if not status:
            await asyncio.sleep(AGAIN_S)
    user.story.tell(f"{user.name} answers gate {answer.gate_id}: {status}", count=f"gate {status}")
    made = GateTry(answer.run_id, answer.gate_id, answer.request_id, answer.payload, status, user.who)
    user.gate_tries.append(made)
    return status
