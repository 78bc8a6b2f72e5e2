"""Who may answer a gate, and whether it is open in the log.

The log may lag: a step may not be committed yet, or another process may own the run.
"""

from __future__ import annotations

from contextlib import suppress

from headrace.errors import NotFound, Overloaded, PermissionDenied
from headrace.v1 import common_pb2, gates_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.control.gates import Gate
from services.orchestrator.run.run import Run
from services.runtime.auth.access import REQUESTER, may_answer
from services.runtime.auth.identity import Identity, require_identity

OPEN = "open"
"""State of a waiting gate."""


def check_scope(gate_id: str, caller: Identity) -> None:
    """Raises PermissionDenied."""
    if "answer" not in caller.scopes:
        raise PermissionDenied("this credential has no scope 'answer'", scope="answer", gateId=gate_id)


async def check_answerer(gate: Gate, requester: Identity, caller: Identity) -> None:
    """Raises PermissionDenied, or the errors of `is_answerer`."""
    check_scope(gate.gate_id, caller)
    if not await is_answerer(gate, requester, caller):
        check_rule(gate.gate_id, gate.answerers, requester, caller)


async def is_answerer(gate: Gate, requester: Identity, caller: Identity) -> bool:
    """Return whether the caller may answer, after committing steps that may change that; lists may show the gate
    earlier.

    Raises:
        Overloaded: Committing takes too long.
        HeadraceError: The log refused the gate's last step.
    """
    if is_named(gate.answerers, requester, caller):
        return True
    await gate.catch_up()
    return is_named(gate.answerers, requester, caller)


def is_named(rule: common_pb2.Answerers, requester: Identity, caller: Identity) -> bool:
    return may_answer(rule.any_of, requester, caller, not_requester=rule.not_requester)


def check_rule(gate_id: str, rule: common_pb2.Answerers, requester: Identity, caller: Identity) -> None:
    """Raises PermissionDenied."""
    if is_named(rule, requester, caller):
        return
    if rule.not_requester and caller == requester:
        why = "four eyes: the requester may not answer, and without authentication everybody is the same user"
    elif rule.not_requester and (shared := caller.persons & requester.persons):
        why = f"four eyes: {min(shared)!r} knows your API key and the requester's; ConfirmKey makes yours your own"
    else:
        why = f"it is for {', '.join(rule.any_of) or REQUESTER}"
    raise PermissionDenied(f"you may not answer this gate: {why}", gateId=gate_id)


async def find_requester(run: Run | None, peers: Peers, run_id: str, gate_id: str) -> Identity:
    """Return the run's user if the caller may see its gate; otherwise the caller's own identity.

    `run` is this process's run, of any user of the caller's tenant.
    """
    caller = require_identity()
    if run is not None and run.identity == caller:
        return caller
    # If this process does not know the gate or the caller's right to it, a later owner of the run may.
    gate = run.gates.find(gate_id) if run is not None else None
    if run is not None and gate is not None:
        # A caller excluded only by the four-eyes rule may see the gate, like the requester, to get that error.
        names = gate.answerers.any_of
        may_see = await is_answerer(gate, run.identity, caller) or may_answer(
            names, run.identity, caller, not_requester=False
        )
        if may_see or "operate" in caller.scopes:
            return run.identity
    try:
        stored = await get_stored_gate(peers, run_id, gate_id)
    except NotFound:
        return caller
    requester = Identity.from_stored(caller.tenant, stored.requester)
    if gate is None:
        return caller if requester == caller else requester
    if stored.state == OPEN and is_named(stored.answerers, requester, caller):
        raise Overloaded(f"another process has the run of gate {gate_id!r} by now; try again")
    return caller


async def get_stored_gate(peers: Peers, run_id: str, gate_id: str) -> gates_pb2.Gate:
    """Return the gate. Raises NotFound if the caller may not see it or it does not exist."""
    wanted = gates_pb2.GetGateRequest(run_id=run_id, gate_id=gate_id)
    return (await peers.memory.GetGate(wanted)).gate


async def check_not_open(run_id: str, gate_id: str, peers: Peers) -> None:
    """Return if the log has no such open gate, so that the client need not retry.

    Raises:
        Overloaded: The gate is open in the log. Another process has the run, perhaps unknown to this one, or the log
            lacks an end that the gate has here, which the run's next owner would not know.
    """
    with suppress(NotFound):
        await check_closed(run_id, gate_id, peers)


async def check_closed(run_id: str, gate_id: str, peers: Peers) -> None:
    """Return if the log has the gate, closed.

    Raises:
        NotFound: The caller may not see it or it does not exist.
        Overloaded: As in `check_not_open`.
    """
    if (await get_stored_gate(peers, run_id, gate_id)).state == OPEN:
        raise Overloaded(f"the log has gate {gate_id!r} open: another process has its run, or may have it; try again")
