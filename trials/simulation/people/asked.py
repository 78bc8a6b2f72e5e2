"""What people have asked, done and been told."""

from __future__ import annotations

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
"""What a run does behind an event, by the first word of its type."""

ENDINGS = {"gate.close": "tool", "tool.result": "between", "compaction.complete": "between"}
"""Events behind which it does something else."""


@dataclass
class Asked:
    """One query as its reader has seen it."""

    chat_id: str
    request_id: str
    message: str
    agent: str
    when_busy: str = ""
    answer: str = "reject"
    """What its reader does at its gates, one of ANSWERS."""
    is_http: bool = False
    """Whether it is asked and read over HTTP."""
    is_recorded: bool = False
    run_id: str = ""
    events: list[Event] = field(default_factory=list[Event])
    tries: int = 0
    """Streams that were opened."""
    refusal: str = ""
    """Reason of an error that says: never."""
    leaves: bool = False
    """Whether its reader is about to leave, and to come back."""
    is_left: bool = False
    """Whether its reader is about to leave for good, or has."""

    gates: dict[str, Event] = field(default_factory=dict[str, Event])
    """Gates that its reader has seen open, by id."""

    @property
    def end(self) -> Event | None:
        return self.events[-1] if self.events and self.events[-1]["type"] in TERMINAL else None

    @property
    def outcome(self) -> str:
        """In a word."""
        if self.end is None:
            return self.refusal or "open"
        return self.end.get("error", {}).get("code", self.end["type"])


def name_phase(event: Event) -> str:
    """Say what a run does that has sent this event last."""
    kind: str = event["type"]
    return ENDINGS.get(kind) or PHASES.get(kind.partition(".")[0], "between")


def find_phases(asked: Iterable[Asked]) -> list[str]:
    """Return what the open runs of these do, by the last event that the reader of each has seen."""
    open_runs = [one for one in asked if one.end is None and not one.refusal and not one.is_left]
    found = [name_phase(run.events[-1]) if run.events else "start" for run in open_runs]
    return [*dict.fromkeys(found)] or ["idle"]


@dataclass(frozen=True, slots=True)
class StateMove:
    """A read or a change of a chat's state, from question to answer."""

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
    """A change of what a chat shows that was answered."""

    chat_id: str
    kind: str
    """One of EDIT_KINDS."""
    request: Any
    n: int
    """Number of the line that says so; 0: nothing had to change."""


@dataclass(frozen=True, slots=True)
class GateTry:
    """An answer to a gate, and what became of it."""

    run_id: str
    gate_id: str
    request_id: str
    payload: str
    status: str
    """accepted, duplicate, expired, unmatched, or the reason of an error."""
    who: str
    """The user who gave it."""


@dataclass
class Kept:
    """A schedule, as its user knows it."""

    schedule_id: str
    last: schedule_pb2.Schedule
    """As it was after the faults, and before it was paused."""
    triggered_at: list[int] = field(default_factory=list[int])
    """Times of triggers that were answered."""
    tries: int = 0
    """Tries of them; each may have made a time that a fail-over took back before another was answered."""


Shown: TypeAlias = dict[tuple[str, str], tuple[str, ...]]
"""Voters of each gate that waits, by run and gate."""


def as_json(delta: agent_pb2.AgentDelta) -> Event:
    sent = json_form.event(delta)
    assert sent is not None
    return json.loads(sent.json)
