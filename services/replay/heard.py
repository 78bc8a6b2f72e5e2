"""The orchestrator's output in a replay, in the recorder's form, and its differences from the cassette."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headrace.cassette.methods import dump, parse_request
from headrace.v1 import agent_pb2
from services.orchestrator.peers.recorder import WITHOUT_REQUEST, Entry
from services.runtime.formats import json_form
from services.runtime.telemetry.masking import MASK, mask_secrets

TIMES = frozenset({"timestamp", "expiresAt", "remindAt", "escalateAt", "until", "openedAt"})
"""Members of events that are times, which may differ in a replay."""

BESIDE = TIMES | {"agentVersionHash"}
"""Members of events that are not compared: a changed definition shows by its effects."""

UNCOMPARED = frozenset({"timeoutMs", "requestId", "timeLeftMs", "traceparent", "commonOnly"})
"""Members of requests that depend on the clock, are always new, or are missing in older cassettes."""

SHOWN_CHARS = 160


@dataclass(eq=False, slots=True)
class HeardCall:
    number: int
    """Its number in this replay."""
    method: str
    data: bytes
    is_taken: bool = False
    """Whether its RPC has arrived."""

    @property
    def request(self) -> Any:
        """Its JSON, without the members that are not compared."""
        if self.method in WITHOUT_REQUEST:
            return None
        return drop_members(dump(parse_request(self.method, self.data)), UNCOMPARED)


class Heard:
    def __init__(self) -> None:
        self.calls: list[HeardCall] = []
        """Calls that no line of the cassette has named yet."""
        self.untaken: list[HeardCall] = []
        """Calls for which the RPC has not arrived yet."""
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
        """Return the call that an RPC belongs to; None if no run makes it."""
        call = next((call for call in self.untaken if call.method == method), None)
        if call is not None:
            self.untaken.remove(call)
        return call


def event_json(event: agent_pb2.AgentDelta) -> dict[str, Any]:
    sent = json_form.event(event)
    return {} if sent is None else json.loads(sent.json)


class Difference(Exception):
    """The replay differs from the cassette; the message names the line and the difference."""


def differs(recorded: Any, replayed: Any) -> bool:
    """Return whether two JSON values differ; text masked in the recording is masked in both."""
    if recorded == replayed:
        return False
    if isinstance(recorded, str) and isinstance(replayed, str):
        return MASK not in recorded or recorded != mask_secrets(replayed)
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        return recorded.keys() != replayed.keys() or any(differs(recorded[name], replayed[name]) for name in recorded)
    if isinstance(recorded, list) and isinstance(replayed, list):
        pairs = zip(recorded, replayed, strict=False)
        return len(recorded) != len(replayed) or any(differs(one, other) for one, other in pairs)
    return True


def drop_members(given: Any, names: frozenset[str]) -> Any:
    if isinstance(given, dict):
        return {name: drop_members(value, names) for name, value in given.items() if name not in names}
    if isinstance(given, list):
        return [drop_members(item, names) for item in given]
    return given


def describe(recorded: Any, replayed: Any) -> str:
    """Describe the first difference of two values."""
    for path, one, other in _walk("", recorded, replayed):
        mask = " (the recording is masked here)" if isinstance(one, str) and MASK in one else ""
        return f"{path or 'all'}: recorded {_shorten(one)}, replayed {_shorten(other)}{mask}"
    return "nothing differs"


def _walk(path: str, one: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in dict.fromkeys((*one, *other)):
            yield from _walk(f"{path}.{name}" if path else name, one.get(name, ABSENT), other.get(name, ABSENT))
    elif isinstance(one, list) and isinstance(other, list):
        for index in range(max(len(one), len(other))):
            left, right = (items[index] if index < len(items) else ABSENT for items in (one, other))
            yield from _walk(f"{path}[{index}]", left, right)
    elif differs(one, other):
        yield path, one, other


class _Absent:
    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


def _shorten(value: Any) -> str:
    text = repr(value) if isinstance(value, _Absent) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
