"""Who may answer a gate, and whether the log has it open.

Both may be known better elsewhere: a step is on its way to the log, or another process has the run.
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
"""State of a gate that waits."""


def check_scope(gate_id: str, caller: Identity) -> None:
    """Raises PermissionDenied."""
    if "answer" not in caller.scopes:
        raise PermissionDenied("this credential has no scope 'answer'", scope="answer", gateId=gate_id)


async def check_answerer(gate: Gate, requester: Identity, caller: Identity) -> None:
    """Raises PermissionDenied, or as `is_answerer`."""
    check_scope(gate.gate_id, caller)
    if not await is_answerer(gate, requester, caller):
        check_rule(gate.gate_id, gate.answerers, requester, caller)


async def is_answerer(gate: Gate, requester: Identity, caller: Identity) -> bool:
    """Say whether the caller may answer, once this process knows what the log has: lists may name the caller before.

    Raises:
        Overloaded: That takes too long.
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
        why = "four eyes: whoever asked may not answer, and without authentication everybody is the same user"
    elif rule.not_requester and (shared := caller.persons & requester.persons):
        why = f"four eyes: {min(shared)!r} knows your API key and the requester's; ConfirmKey makes yours your own"
    else:
        why = f"it is for {', '.join(rule.any_of) or REQUESTER}"
    raise PermissionDenied(f"you may not answer this gate: {why}", gateId=gate_id)


async def find_requester(run: Run | None, peers: Peers, run_id: str, gate_id: str) -> Identity:
    """Return whose run it is where the caller may see its gate; the caller's own identity otherwise.

    `run` is this process's, of any user of the caller's tenant.
    """
    caller = require_identity()
    if run is not None and run.identity == caller:
        return caller
    # One that is not known here, or to whom it was passed, may be so by an owner that has the run by now.
    gate = run.gates.find(gate_id) if run is not None else None
    if run is not None and gate is not None:
        # Whom four eyes alone keep from it is told so, like the requester.
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
    """Raises NotFound: There is none that the caller may see."""
    wanted = gates_pb2.GetGateRequest(run_id=run_id, gate_id=gate_id)
    return (await peers.memory.GetGate(wanted)).gate


async def check_not_open(run_id: str, gate_id: str, peers: Peers) -> None:
    """Return where the log has no such gate that waits: whoever is told so does not come again.

    Raises:
        Overloaded: It waits: another process has the run, whether this one knows it or not, or the log has not taken
            the end that the gate has here, which the run's next owner does not know.
    """
    with suppress(NotFound):
        await check_closed(run_id, gate_id, peers)


async def check_closed(run_id: str, gate_id: str, peers: Peers) -> None:
    """Return where the log has such a gate, which waits no more.

    Raises:
        NotFound: There is none that the caller may see. Overloaded: As `check_not_open`.
    """
    if (await get_stored_gate(peers, run_id, gate_id)).state == OPEN:
        raise Overloaded(f"the log has gate {gate_id!r} open: another process has its run, or may have it; try again")
