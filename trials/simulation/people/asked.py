"""Records of the users' questions, acts and observations."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from headrace.v1 import agent_pb2, schedule_pb2
from services.runtime.formats import json_form
from tests.support.order import TERMINAL, Event

PHASES = {
    "reasoning": "model",
    "content": "model",
    "attempt": "model",
    "tool": "tool",
    "gate": "gate",
    "compaction": "compaction",
}
"""Phase of a run after an event, by the first word of the event's type."""

ENDINGS = {"gate.close": "tool", "tool.result": "between", "compaction.complete": "between"}
"""Events that end a phase, with the phase that follows."""


@dataclass
class Asked:
    """One query, as seen by its reader."""

    chat_id: str
    request_id: str
    message: str
    agent: str
    when_busy: str = ""
    answer: str = "reject"
    """The reader's behaviour at gates, one of ANSWERS."""
    is_http: bool = False
    """Whether it is sent and read over HTTP."""
    is_recorded: bool = False
    run_id: str = ""
    events: list[Event] = field(default_factory=list[Event])
    tries: int = 0
    """Number of opened streams."""
    refusal: str = ""
    """Reason of a permanent error."""
    leaves: bool = False
    """Whether its reader is about to leave and return."""
    is_left: bool = False
    """Whether its reader is about to leave for good, or has left."""

    gates: dict[str, Event] = field(default_factory=dict[str, Event])
    """Gates that its reader has seen open, by id."""

    @property
    def end(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1]["type"] in TERMINAL else None

    @property
    def outcome(self) -> str:
        """Type of the last event, error code, refusal, or "open"."""
        if self.end is None:
            return self.refusal or "open"
        return self.end.get("error", {}).get("code", self.end["type"])


def name_phase(event: Event) -> str:
    """Return the phase of a run after its last event."""
    kind: str = event["type"]
    return ENDINGS.get(kind) or PHASES.get(kind.partition(".")[0], "between")


def find_phases(asked: Iterable[Asked]) -> list[str]:
    """Return the phases of these queries' open runs, by the last event that each reader has seen."""
    open_runs = [one for one in asked if one.end is None and not one.refusal and not one.is_left]
    found = [name_phase(run.events[-1]) if run.events else "start" for run in open_runs]
    return [*dict.fromkeys(found)] or ["idle"]


@dataclass(frozen=True, slots=True)
class StateMove:
    """A read or change of a chat's state, from request to answer."""

    chat_id: str
    is_change: bool
    version: int
    asked_s: float
    answered_s: float


@dataclass(frozen=True, slots=True)
class Fork:
    source: str
    copy: str


@dataclass(frozen=True, slots=True)
class Edit:
    """An acknowledged edit of a chat's view."""

    chat_id: str
    kind: str
    """One of EDIT_KINDS."""
    request: Any
    n: int
    """Number of the edit's log line; 0 if nothing had to change."""


@dataclass(frozen=True, slots=True)
class GateTry:
    """An attempt to answer a gate, and its result."""

    run_id: str
    gate_id: str
    request_id: str
    payload: str
    status: str
    """accepted, duplicate, expired, unmatched, or the reason of an error."""
    who: str
    """User who gave the answer."""


@dataclass
class Kept:
    """A schedule, as known to its user."""

    schedule_id: str
    last: schedule_pb2.Schedule
    """State after the faults and before it was paused."""
    triggered_at: list[int] = field(default_factory=list[int])
    """Times of acknowledged triggers."""
    tries: int = 0
    """Number of trigger attempts; each may have created a time that a fail-over took back before another was
    answered.
    """


Shown: TypeAlias = dict[tuple[str, str], tuple[str, ...]]
"""Voters of each waiting gate, by run and gate."""


def as_json(delta: agent_pb2.AgentDelta) -> Event:
    sent = json_form.event(delta)
    assert sent is not None
    return json.loads(sent.json)
