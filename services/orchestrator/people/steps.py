"""People's actions on an open gate other than answering: claim, release, delegate, ask back.

Each is a line of the log, which informs later owners of the run and memory's list of gates.
"""

from __future__ import annotations

import asyncio
import re
from functools import partial

from headrace.errors import Claimed, InvalidRequest, NotFound
from headrace.shown_text import make_visible
from headrace.v1 import agent_pb2, gates_pb2
from services.orchestrator.people import live_input
from services.orchestrator.people.access import check_answerer
from services.orchestrator.run.control.gates import ASKED_BACK, CLAIMED, DELEGATED, RELEASED, Gate
from services.orchestrator.run.run import Run
from services.runtime.auth.access import USER
from services.runtime.auth.identity import acting_as, require_identity
from services.runtime.clock import now_ms

NOTE_CHARS_MAX = 4000

NAMES_MAX = 16

LEASE_MS, LEASE_MS_MIN, LEASE_MS_MAX = 60_000, 1000, 600_000

_NAME = re.compile(r"user:[!-~]{1,128}|role:[!-+\--~]{1,64}")


def check_lease(request: gates_pb2.ClaimGateRequest) -> None:
    """Raises InvalidRequest."""
    if request.HasField("lease_ms") and not LEASE_MS_MIN <= request.lease_ms <= LEASE_MS_MAX:
        raise InvalidRequest.of("leaseMs", f"must be {LEASE_MS_MIN} to {LEASE_MS_MAX}")


def check_delegation(request: gates_pb2.DelegateGateRequest) -> None:
    """Raises InvalidRequest."""
    if not 1 <= len(request.to) <= NAMES_MAX:
        raise InvalidRequest.of("to", f"must have 1 to {NAMES_MAX} names")
    if not all(map(_NAME.fullmatch, request.to)):
        raise InvalidRequest.of("to", "must be user:NAME or role:NAME, of the run's tenant")
    check_note(request.note)


def check_note(note: str) -> None:
    """Raises InvalidRequest."""
    if len(note) > NOTE_CHARS_MAX:
        raise InvalidRequest.of("note", f"must have at most {NOTE_CHARS_MAX} characters")


async def claim_gate(
    run: Run, request: gates_pb2.ClaimGateRequest, tasks: asyncio.TaskGroup
) -> gates_pb2.ClaimGateResponse | None:
    """Return when the claim is committed; None if the gate is closed.

    Raises:
        NotFound: No such gate has been opened.
        PermissionDenied: The caller may not answer it.
        Claimed: Another client has claimed it.
        QueueFull: The run's log has too many claims.
    """
    caller, gate = require_identity(), _require_gate(run, request.gate_id)
    await check_answerer(gate, run.identity, caller)
    async with gate.answering:
        await gate.flush()
        if not _is_waiting(run, gate):
            return None
        lease_ms = request.lease_ms or LEASE_MS
        claim = gate.find_claim(caller.user, request.holder)
        until = min(now_ms() + lease_ms, gate.opened.expires_at)
        more_ms = until - claim.until if claim is not None else lease_ms
        if more_ms >= lease_ms // 2 or (more_ms > 0 and until == gate.opened.expires_at):
            step = agent_pb2.GateStep(gate_id=gate.gate_id, step=CLAIMED, until=until, holder=request.holder)
            await commit_step(run, gate, step, tasks)
        elif claim is not None:
            until = claim.until
    return gates_pb2.ClaimGateResponse(status=CLAIMED, claimed_by=caller.user, claimed_until=until)


async def release_gate(
    run: Run, request: gates_pb2.ReleaseGateRequest, tasks: asyncio.TaskGroup
) -> gates_pb2.ReleaseGateResponse:
    """Return when the release is committed."""
    caller, gate = require_identity(), run.gates.find(request.gate_id)
    if gate is None:
        return gates_pb2.ReleaseGateResponse(released=False)
    async with gate.answering:
        await gate.flush()
        try:
            claim = gate.find_claim(caller.user, request.holder)
        except Claimed:
            claim = None
        if claim is None or not _is_waiting(run, gate):
            return gates_pb2.ReleaseGateResponse(released=False)
        step = agent_pb2.GateStep(gate_id=gate.gate_id, step=RELEASED, holder=request.holder)
        await commit_step(run, gate, step, tasks)
    return gates_pb2.ReleaseGateResponse(released=True)


async def delegate_gate(
    run: Run, request: gates_pb2.DelegateGateRequest, tasks: asyncio.TaskGroup
) -> gates_pb2.DelegateGateResponse | None:
    """Return when the delegation is committed; None if the gate is closed.

    Raises:
        NotFound: No such gate has been opened.
        InvalidRequest: The new answerer is the requester, whom the four-eyes rule excludes.
        PermissionDenied: The caller may not answer it.
        QueueFull: The gate has too many steps.
    """
    gate = _require_gate(run, request.gate_id)
    await check_answerer(gate, run.identity, require_identity())
    if gate.opened.answerers.not_requester and {USER + name for name in run.identity.persons} & {*request.to}:
        raise InvalidRequest.of("to", "names the requester, who may not answer this gate (four eyes)")
    step = agent_pb2.GateStep(
        gate_id=request.gate_id, step=DELEGATED, to=request.to, note=request.note or None, request_id=request.request_id
    )
    is_taken = await _take_once(run, gate, step, tasks)
    return gates_pb2.DelegateGateResponse(status=DELEGATED) if is_taken else None


async def ask_back(
    run: Run, request: gates_pb2.AskBackRequest, tasks: asyncio.TaskGroup
) -> gates_pb2.AskBackResponse | None:
    """Return when the question to the requester, or the requester's reply, is committed; otherwise like
    `delegate_gate`."""
    caller, gate = require_identity(), _require_gate(run, request.gate_id)
    if caller != run.identity:
        await check_answerer(gate, run.identity, caller)
    step = agent_pb2.GateStep(
        gate_id=request.gate_id, step=ASKED_BACK, note=request.note, request_id=request.request_id
    )
    is_taken = await _take_once(run, gate, step, tasks)
    return gates_pb2.AskBackResponse(status=ASKED_BACK) if is_taken else None


def _require_gate(run: Run, gate_id: str) -> Gate:
    if (gate := run.gates.find(gate_id)) is None:
        raise NotFound(f"run {run.id} has no gate {gate_id!r}", runId=run.id)
    return gate


def _is_waiting(run: Run, gate: Gate) -> bool:
    return not run.feed.ended and gate.foresee() == "accepted"


async def _take_once(run: Run, gate: Gate, step: agent_pb2.GateStep, tasks: asyncio.TaskGroup) -> bool:
    """Commit a step unless the log already has it for this request; return False if the gate is closed."""
    async with gate.answering:
        await gate.flush()
        if gate.has_step(step.step, require_identity().user, step.request_id):
            return True
        if not _is_waiting(run, gate):
            return False
        await commit_step(run, gate, step, tasks)
    return True


async def commit_step(run: Run, gate: Gate, step: agent_pb2.GateStep, tasks: asyncio.TaskGroup) -> None:
    """Return when the caller's step is in the log; `answering` must be held. Raises QueueFull."""
    run.gates.check_room(step)
    caller = require_identity()
    step.by = caller.user
    if caller.credential:
        step.credential = caller.credential
    if step.HasField("note"):
        step.note = make_visible(step.note)
    with acting_as(run.identity):  # the chat belongs to the requester, not to the person who answers
        gate.step_commit = live_input.publish(run, step, tasks, partial(run.gates.note, step))
    await gate.flush()
