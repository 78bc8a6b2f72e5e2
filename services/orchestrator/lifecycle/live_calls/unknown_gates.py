"""Gates that wait by the log, and not in a run's process: another has the run by now, or may have it soon."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import NotFound, Overloaded
from headrace.v1 import gates_pb2
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.peer_calls import translating_peer_errors

if TYPE_CHECKING:
    from services.orchestrator.peers.stubs import Peers
    from services.orchestrator.run.run import Run

AboutGate: TypeAlias = (
    gates_pb2.ClaimGateRequest | gates_pb2.ReleaseGateRequest | gates_pb2.DelegateGateRequest | gates_pb2.AskBackRequest
)

OPEN = "open"
"""State of a gate that waits."""


async def check_not_open(run: Run, gate_id: str, peers: Peers) -> None:
    """Return where the log has no such gate that waits: whoever is told so does not come again.

    Raises:
        Overloaded: It waits: this process has lost the run and has not been told yet, or the log has not taken the end
            that the gate has here, which the run's next owner does not know.
    """
    wanted = gates_pb2.GetGateRequest(run_id=run.id, gate_id=gate_id)
    try:
        with translating_peer_errors():
            answer = await peers.memory.GetGate(wanted, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
    except NotFound:
        return
    if answer.gate.state == OPEN:
        is_known = run.waits.find_gate(gate_id) is not None
        why = "the log has no end of it yet" if is_known else "another process has opened it"
        raise Overloaded(f"gate {gate_id!r} of the run still waits: {why}; try again")
