"""What memory was asked and what it answered, as it passed over the wires: for the judge of linearizability."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import inf
from typing import Any

import grpc

from headrace.v1 import memory_pb2
from services.runtime.calls.metadata import STATUS

OK = b"%d" % grpc.StatusCode.OK.value[0]
ABORTED = b"%d" % grpc.StatusCode.ABORTED.value[0]

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
"""Calls that are kept, with the messages of each."""


@dataclass(slots=True)
class Operation:
    """A call: it has its effect between the two times, if it has one."""

    kind: str
    request: Any
    asked_s: float
    answered_s: float = inf
    answer: Any = None
    """None for a refusal, and without an answer."""
    is_refused: bool = False
    """Whether it was told that what it asked for is not as it believed (ABORTED); it has changed nothing then."""


def get_append(call: Operation) -> Any:
    """Return what an Append or a BeginRun asks to be appended."""
    return call.request.append if call.kind == "BeginRun" else call.request


@dataclass(slots=True)
class _Pending:
    path: str
    operation: Operation | None = None
    answer: bytes = b""


@dataclass(slots=True)
class History:
    operations: list[Operation] = field(default_factory=list[Operation])
    _pending: dict[tuple[int, int], _Pending] = field(default_factory=dict[tuple[int, int], _Pending])
    """Calls on their way, by connection and stream."""

    def find_owner(self, run_id: str) -> str:
        """Return the address of who has begun the run."""
        return next(append.owner for append in self.list_appends() if append.run_id == run_id and append.owner)

    def list_appends(self) -> list[Any]:
        """Return what was to be appended, in the order in which it was asked for."""
        return [get_append(call) for call in self.operations if call.kind in ("Append", "BeginRun")]

    def note_up(self, connection: int, what: str, args: Sequence[Any], now_s: float) -> None:
        """Note what a client sends."""
        key = (connection, args[0]) if args else (connection, 0)
        if what == "receive_call":
            if args[1] in KINDS:
                self._pending[key] = _Pending(args[1])
        elif what == "receive_message" and (pending := self._pending.get(key)) is not None:
            request, _ = KINDS[pending.path]
            pending.operation = Operation(pending.path.rpartition("/")[2], request.FromString(args[1]), now_s)
            self.operations.append(pending.operation)

    def note_down(self, connection: int, what: str, args: Sequence[Any], now_s: float) -> None:
        """Note what memory answers: when it sends that, all has happened."""
        key = (connection, args[0]) if args else (connection, 0)
        if (pending := self._pending.get(key)) is None:
            return
        if what == "receive_message":
            pending.answer = args[1]
        elif what == "receive_trailers" and (operation := pending.operation) is not None:
            del self._pending[key]
            status = next((text for name, text in args[1] if name == STATUS), OK)
            if status == OK:
                operation.answer = KINDS[pending.path][1].FromString(pending.answer)
                operation.answered_s = now_s
            elif status == ABORTED:
                operation.is_refused, operation.answered_s = True, now_s
