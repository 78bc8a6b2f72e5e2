"""People at gates: whoever reads the run answers by Submit, a second client finds the gate in the list."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc

from headrace.errors import HeadraceError
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, gates_pb2
from services.runtime.clock import now_ms
from services.runtime.randomness import RANDOM, new_uuid
from tests.simulation.outside.outside import WORDS

if TYPE_CHECKING:
    from random import Random

    from tests.order import Event
    from tests.simulation.people.users import User

SOON_S, LATE_S = (0.0, 3.0), (10.0, 40.0)
"""When people answer; gates close within the later of the two."""

LOOK_S = (1.0, 4.0)
"""Between two looks of the second client at the list."""

SHARE = 0.5
"""Share of the gates that the second client answers."""

AGAIN_S, CALL_S = 0.5, 20.0

REPEATS = "run it again"
"""Part of the reason of a gate before a call whose first run may have had its effect."""


@dataclass(frozen=True, slots=True)
class GateTry:
    """An answer to a gate, and what became of it."""

    run_id: str
    gate_id: str
    request_id: str
    payload: str
    status: str
    """accepted, duplicate, expired, unmatched, or the reason of an error."""
    told_ms: int


async def answer_gate(user: User, run_id: str, event: Event, how: str) -> None:
    """Answer a gate as `how` says, one of ANSWERS, and note what becomes of it."""
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


async def look_for_gates(user: User, until: asyncio.Event) -> None:
    """Answer some of the gates that the list has, for as long as there is somebody who asks."""
    random = RANDOM.get()
    seen: set[tuple[str, str]] = set()
    while not until.is_set():
        await asyncio.sleep(random.uniform(*LOOK_S))
        for gate in await _list_gates(user):
            place = gate.run_id, gate.gate_id
            if place not in seen:
                seen.add(place)
                if random.random() < SHARE:
                    payload = _make_payload(gate.kind, random.choice(("approve", "reject")), random)
                    await _answer(user, _Answer(*place, new_uuid(), payload))


@dataclass(frozen=True, slots=True)
class _Answer:
    run_id: str
    gate_id: str
    request_id: str
    payload: str


def _make_payload(kind: str, how: str, random: Random) -> str:
    given = {"tree": random.choice(WORDS), "number": random.randrange(1000)}
    if kind != "approval":
        return json.dumps(given)
    if how == "edit":
        return json.dumps({"decision": "edit", "arguments": given})
    return json.dumps({"decision": "reject" if how == "reject" else "approve"})


async def _submit(user: User, answer: _Answer) -> None:
    request = agent_pb2.SubmitRequest(run_id=answer.run_id, payload=answer.payload, request_id=answer.request_id)
    if answer.gate_id.startswith("approval"):
        request.approval_id = answer.gate_id
    else:
        request.tool_id = answer.gate_id
    await _try(user, answer, lambda: user.agents.Submit(request, timeout=CALL_S))


async def _answer(user: User, answer: _Answer) -> None:
    request = gates_pb2.AnswerGateRequest(
        run_id=answer.run_id, gate_id=answer.gate_id, payload=answer.payload, request_id=answer.request_id
    )
    await _try(user, answer, lambda: user.gates.AnswerGate(request, timeout=CALL_S))


async def _list_gates(user: User) -> list[gates_pb2.Gate]:
    try:
        with rpc_errors():
            return list((await user.gates.ListGates(gates_pb2.ListGatesRequest(), timeout=CALL_S)).gates)
    except (HeadraceError, grpc.aio.AioRpcError):
        return []


async def _try(user: User, answer: _Answer, call: Any) -> None:
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
    made = GateTry(answer.run_id, answer.gate_id, answer.request_id, answer.payload, status, now_ms())
    user.gate_tries.append(made)
