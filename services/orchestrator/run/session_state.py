"""A context's session state in memory, changed field by field with compare-and-set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import msgspec

from headrace.errors import NotFound, StaleLease
from headrace.v1 import memory_pb2
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.scope import Scope

CHANGES_MAX = 5
"""Maximum attempts; the only other writers are calls of the same answer."""

T = TypeVar("T")

_FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class State:
    version: int
    values: dict[str, bytes]

    @classmethod
    def from_response(cls, response: memory_pb2.GetStateResponse) -> State:
        values = _FIELDS.decode(response.state)
        return cls(response.version, {name: bytes(value) for name, value in values.items()})

    def read(self, name: str, kind: type[T], otherwise: T) -> T:
        try:
            return msgspec.json.decode(self.values[name], type=kind) if name in self.values else otherwise
        except msgspec.DecodeError:
            return otherwise


async def load(scope: Scope, peers: Peers) -> State:
    # Before its query is stored, a run may ask for the state of a chat that it is about to make.
    may_be_new = not scope.run.state.is_stored
    request = memory_pb2.GetStateRequest(chat_id=scope.run.chat_id, context_id=scope.context_id or "")
    try:
        reply = await peers.memory.GetState(request)
    except NotFound:
        if not may_be_new:
            raise
        return State(0, {})
    return State.from_response(reply)


async def change(scope: Scope, peers: Peers, **values: bytes) -> None:
    """Set fields, each to JSON text.

    Raises:
        StaleLease: Other writers changed the state at each attempt.
    """
    await scope.run.state.wait_for_start()
    for attempt in range(1, CHANGES_MAX + 1):
        state = await load(scope, peers)
        fields = {name: msgspec.Raw(value) for name, value in (state.values | values).items()}
        request = memory_pb2.UpdateStateRequest(
            chat_id=scope.run.chat_id,
            context_id=scope.context_id or "",
            expected_version=state.version,
            state=msgspec.json.encode(fields).decode(),
            run_id=scope.run.id,
            generation=scope.run.log.generation,
        )
        try:
            await peers.memory.UpdateState(request)
        except StaleLease:
            if attempt == CHANGES_MAX:
                raise
        else:
            return
