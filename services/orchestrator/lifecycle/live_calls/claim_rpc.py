"""ClaimGate and ReleaseGate: one client answers a gate, and the others know.

A claim, each renewal and a release are lines of the log: so the owner that takes the run over and memory's list know
what this process does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from headrace.errors import Claimed, InvalidRequest, NotFound
from headrace.v1 import agent_pb2, gates_pb2
from services.orchestrator.lifecycle.live_calls import live_input
from services.orchestrator.lifecycle.live_calls.approval_answers import check_answerer
from services.orchestrator.run.control.gate_claims import CLAIMED, RELEASED, GateClaim
from services.orchestrator.run.control.gate_state import GateState
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import acting_as, require_identity
from services.runtime.clock import now_ms

LEASE_MS, LEASE_MS_MIN, LEASE_MS_MAX = 60_000, 1000, 600_000


def check_lease(request: gates_pb2.ClaimGateRequest) -> None:
    """Raises InvalidRequest."""
    if request.HasField("lease_ms") and not LEASE_MS_MIN <= request.lease_ms <= LEASE_MS_MAX:
        raise InvalidRequest.of("leaseMs", f"must be {LEASE_MS_MIN} to {LEASE_MS_MAX}")


async def claim_gate(
    run: Run, request: gates_pb2.ClaimGateRequest, tasks: asyncio.TaskGroup
) -> gates_pb2.ClaimGateResponse:
    """Return when the claim is committed.

    Raises:
        NotFound: No such gate has been opened.
        PermissionDenied: The caller may not answer it.
        Claimed: Another client has it.
        QueueFull: The run's log has too many claims.
    """
    caller, gate = require_identity(), run.waits.find_gate(request.gate_id)
    if gate is None:
        raise NotFound(f"run {run.id} has no gate {request.gate_id!r}", runId=run.id)
    await check_answerer(gate, run.identity, caller)
    async with gate.answering:
        await gate.settle()
        if run.feed.ended or run.waits.foresee_claim(request.gate_id, "") != "accepted":
            return gates_pb2.ClaimGateResponse(status="closed")
        lease_ms = request.lease_ms or LEASE_MS
        claim = run.claims.find(request.gate_id, caller.user, request.holder)
        until = min(now_ms() + lease_ms, gate.opened.expires_at)
        more_ms = until - claim.until if claim is not None else lease_ms
        if more_ms >= lease_ms // 2 or (more_ms > 0 and until == gate.opened.expires_at):
            run.claims.count_line()
            claim = GateClaim(caller.user, request.holder, until)
            step = agent_pb2.GateStep(gate_id=gate.gate_id, step=CLAIMED, until=until, holder=request.holder)
            await _commit(run, gate, step, tasks, partial(run.claims.put, gate.gate_id, claim))
    assert claim is not None, "the lease of a new one is longer than nothing"
    return gates_pb2.ClaimGateResponse(status=CLAIMED, claimed_by=claim.user, claimed_until=claim.until)


async def release_gate(
    run: Run, request: gates_pb2.ReleaseGateRequest, tasks: asyncio.TaskGroup
) -> gates_pb2.ReleaseGateResponse:
    """Return when the release is committed."""
    caller, gate = require_identity(), run.waits.find_gate(request.gate_id)
    if gate is None:
        return gates_pb2.ReleaseGateResponse(released=False)
    async with gate.answering:
        await gate.settle()
        try:
            claim = run.claims.find(request.gate_id, caller.user, request.holder)
        except Claimed:
            claim = None
        if claim is None or run.feed.ended or run.waits.foresee_claim(request.gate_id, "") != "accepted":
            return gates_pb2.ReleaseGateResponse(released=False)
        step = agent_pb2.GateStep(gate_id=gate.gate_id, step=RELEASED, holder=request.holder)
        forget = partial(run.claims.remove, gate.gate_id, caller.user, request.holder)
        await _commit(run, gate, step, tasks, forget)
    return gates_pb2.ReleaseGateResponse(released=True)


async def _commit(
    run: Run, gate: GateState, step: agent_pb2.GateStep, tasks: asyncio.TaskGroup, then: Callable[[], None]
) -> None:
    """Return when the log has the caller's step, of which the caller holds `answering`."""
    caller = require_identity()
    step.by = caller.user
    if caller.credential:
        step.credential = caller.credential
    with acting_as(run.identity):  # the chat is the requester's, whoever claims
        gate.committing = live_input.publish(run, step, tasks, then)
    await gate.settle()
