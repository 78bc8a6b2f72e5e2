"""Records the calls of memory and their answers, as the network transmits them, for the judge of linearizability."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import grpc

from headrace.v1 import memory_pb2

KINDS = {
    f"/headrace.v1.MemoryService/{name}": (request, answer)
    for name, request, answer in (
        ("Append", memory_pb2.AppendRequest, memory_pb2.AppendResponse),
        ("BeginRun", memory_pb2.BeginRunRequest, memory_pb2.BeginRunResponse),
        ("AcquireLease", memory_pb2.AcquireLeaseRequest, memory_pb2.AcquireLeaseResponse),
        ("GetState", memory_pb2.GetStateRequest, memory_pb2.GetStateResponse),
        ("UpdateState", memory_pb2.UpdateStateRequest, memory_pb2.UpdateStateResponse),
        ("Revert", memory_pb2.RevertRequest, memory_pb2.RevertResponse),
    )
}
"""Recorded calls, with their message types."""


@dataclass(slots=True)
class Operation:
    """A call, which takes effect between its two times, if at all."""

    kind: str
    request: Any
    asked_s: float
    answered_s: float = inf
    answer: Any = None
    """None for a refusal, or without an answer."""
    is_refused: bool = False
    """Whether memory refused the call because its expectation was wrong (ABORTED); such a call has changed
    nothing.
    """


def get_append(call: Operation) -> Any:
    """Return the append of an Append or a BeginRun."""
    return call.request.append if call.kind == "BeginRun" else call.request


@dataclass(slots=True)
class _Pending:
    path: str
    operation: Operation


@dataclass(slots=True)
class History:
    operations: list[Operation] = field(default_factory=list[Operation])
    _pending: dict[tuple[int, int], _Pending] = field(default_factory=dict[tuple[int, int], _Pending])
    """Calls in progress, by connection and stream."""

    def find_owner(self, run_id: str) -> str:
        """Return the address of the replica that began the run."""
        return next(append.owner for append in self.list_appends() if append.run_id == run_id and append.owner)

    def list_appends(self) -> list[Any]:
        """Return all requested appends, in the order of the requests."""
        return [get_append(call) for call in self.operations if call.kind in ("Append", "BeginRun")]

    def note_up(self, connection: int, what: str, args: Sequence[Any], now_s: float) -> None:
        """Record a message of a client."""
        key = (connection, args[0]) if args else (connection, 0)
        if what == "receive_call":
            _, path, _, message = args
            if path in KINDS:
                request, _ = KINDS[path]
                operation = Operation(path.rpartition("/")[2], request.FromString(message), now_s)
                self._pending[key] = _Pending(path, operation)
                self.operations.append(operation)

    def note_down(self, connection: int, what: str, args: Sequence[Any], now_s: float) -> None:
        """Record an answer of memory; when memory sends it, the call has taken effect."""
        if what != "receive_answer":
            return
        stream_id, _, message, status = args
        if (pending := self._pending.pop((connection, stream_id), None)) is None:
            return
        operation = pending.operation
        if status.code is grpc.StatusCode.OK:
            operation.answer = KINDS[pending.path][1].FromString(message)
            operation.answered_s = now_s
        elif status.code is grpc.StatusCode.ABORTED:
            operation.is_refused, operation.answered_s = True, now_s
