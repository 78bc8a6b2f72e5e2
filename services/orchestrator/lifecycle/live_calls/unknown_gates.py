"""Gates that wait by the log, and not in a run's process: another has the run by now, or may have it soon."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import NotFound, Overloaded
from headrace.v1 import gates_pb2
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.peer_calls import translating_peer_errors

if TYPE_CHECKING:
    from services.orchestrator.peers.stubs import Peers

AboutGate: TypeAlias = (
    gates_pb2.ClaimGateRequest | gates_pb2.ReleaseGateRequest | gates_pb2.DelegateGateRequest | gates_pb2.AskBackRequest
)

OPEN = "open"
"""State of a gate that waits."""


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
    wanted = gates_pb2.GetGateRequest(run_id=run_id, gate_id=gate_id)
    with translating_peer_errors():
        answer = await peers.memory.GetGate(wanted, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
    if answer.gate.state == OPEN:
        raise Overloaded(f"the log has gate {gate_id!r} open: another process has its run, or may have it; try again")
