"""What the orchestrator says in a replay, as its own tape notes it."""

from __future__ import annotations

import json
from collections import deque
from dataclasses import dataclass
from typing import Any

from headrace.cassette.methods import dump, parse_request
from headrace.v1 import agent_pb2
from services.orchestrator.peers.tape import WITHOUT_REQUEST, Entry
from services.replay.differences import UNCOMPARED, drop_members
from services.runtime.formats import json_form


@dataclass(eq=False, slots=True)
class HeardCall:
    number: int
    """In this replay."""
    method: str
    data: bytes
    is_taken: bool = False
    """Whether its RPC has come."""

    @property
    def request(self) -> Any:
        """Its JSON, without what is not compared."""
        if self.method in WITHOUT_REQUEST:
            return None
        return drop_members(dump(parse_request(self.method, self.data)), UNCOMPARED)


class Heard:
    def __init__(self) -> None:
        self.calls: list[HeardCall] = []
        """Calls that no line of the cassette has named yet."""
        self.untaken: list[HeardCall] = []
        """Calls whose RPC has not come yet."""
        self.events: deque[agent_pb2.AgentDelta] = deque()
        self.received = 0
        self.answers: dict[int, int] = {}
        """Number of messages that have reached the run, by call."""
        self.ended: set[int] = set()
        self.count = 0

    def hear(self, entry: Entry) -> None:
        self.count += 1
        match entry.kind:
            case "call":
                call = HeardCall(entry.number, entry.method, entry.data)
                self.calls.append(call)
                self.untaken.append(call)
            case "event":
                self.events.append(agent_pb2.AgentDelta.FromString(entry.data))
            case "answer":
                self.answers[entry.number] = self.answers.get(entry.number, 0) + 1
            case "end":
                self.ended.add(entry.number)
            case "received":
                self.received += 1

    def take_rpc(self, method: str) -> HeardCall | None:
        """Return the call that an RPC belongs to; None for one that no run makes."""
        call = next((call for call in self.untaken if call.method == method), None)
        if call is not None:
            self.untaken.remove(call)
        return call


def event_json(event: agent_pb2.AgentDelta) -> dict[str, Any]:
    sent = json_form.event(event)
    return {} if sent is None else json.loads(sent.json)
