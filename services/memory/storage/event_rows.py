"""Events for other systems, derived from the lines of a chat, as CloudEvents 1.0.

They contain ids, states, times and usage, but no content. An event's id derives from its line's uuid, so that repeated
derivation yields the same event; a copy of a chat keeps uuids, and so causes no new events.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import msgspec

from services.memory.log.lines import Event, Line, Run
from services.memory.storage.gates.rows import decode_gate_event, make_closing
from services.runtime.clock import format_time

if TYPE_CHECKING:
    from services.memory.log.chat_info import ChatInfo, RunInfo
    from services.memory.log.raw_json import GateEvent

RUN_ENDED, GATE_OPENED, GATE_EXPIRING = "headrace.run.ended", "headrace.gate.opened", "headrace.gate.expiring"
GATE_STEPS = {"reminded": "headrace.gate.reminded", "escalated": "headrace.gate.escalated"}
"""Event types by the gate steps that cause them."""
BUDGET_WARNING, PING = "headrace.budget.warning", "headrace.ping"
TYPES = (RUN_ENDED, GATE_OPENED, *GATE_STEPS.values(), GATE_EXPIRING, BUDGET_WARNING)
"""Event types that a webhook can subscribe to; a ping goes only to the webhook that is tested."""

EXPIRING_SHARE = 5
"""A gate is about to expire when a fifth of its time is left..."""

EXPIRING_MS_MAX = 3_600_000
"""... and an hour at most."""

_IDS = uuid.UUID("7b1f0c52-3c58-4f0b-9d5e-5a1ed0c4a1f3")


@dataclass(frozen=True, slots=True)
class OutsideEvent:
    event_id: str
    tenant: str
    type: str
    subject: str
    """The chat, or another subject; webhooks receive the events of one subject in order."""
    run_id: str
    gate_id: str
    agent_key: str
    occurred_at: int
    payload: str
    """The CloudEvent as it is sent."""
    committed_at: int
    due_at: int = 0
    """Time at which the event happens, unless its gate is closed first; 0: it has happened."""


@dataclass(frozen=True, slots=True)
class EventChange:
    events: Sequence[OutsideEvent] = ()
    withdrawn: Sequence[tuple[str, str | None]] = ()
    """Run and gate (None: the whole run) of scheduled events that will not happen."""
    is_recovered: bool = False
    """Whether the lines were read again, so that their events may be known already."""

    def __bool__(self) -> bool:
        return bool(self.events or self.withdrawn)


NO_EVENTS = EventChange()


def fold_events(info: ChatInfo, lines: Iterable[Line], *, is_recovered: bool = False) -> EventChange:
    """Return the events of `lines`; `info` knows the chat's runs."""
    events: list[OutsideEvent] = []
    withdrawn: list[tuple[str, str | None]] = []
    for line in lines:
        run = info.runs.get(line.run_id)
        if run is None:
            continue
        if isinstance(line, Run):
            _withdraw(events, withdrawn, line.run_id, None, has_gates=run.has_gates)
            events.append(make_run_ended(info, run, line))
        elif isinstance(line, Event) and run.has_gates:
            gate = decode_gate_event(line.event)
            if gate.type == "gate.open":
                events += _make_gate_events(info, line, gate)
            elif gate.type == "gate.step" and gate.step in GATE_STEPS:
                events.append(_make_step_event(info, run, line, gate))
            elif (closing := make_closing(line.run_id, gate)) is not None:
                _withdraw(events, withdrawn, line.run_id, closing.gate_id, has_gates=True)
    return EventChange(events, withdrawn, is_recovered) if events or withdrawn else NO_EVENTS


def make_event(
    tenant: str, kind: str, key: str, subject: str, at: int, data: dict[str, Any], **fields: Any
) -> OutsideEvent:
    """Create the event that `key` identifies among those of its kind; the same key gives the same event.

    `fields` are further fields of OutsideEvent.
    """
    event_id = str(uuid.uuid5(_IDS, f"{tenant}/{kind}/{key}"))
    event = {
        "specversion": "1.0",
        "id": event_id,
        "source": f"/headrace/tenants/{quote(tenant, safe='')}",
        "type": kind,
        "subject": subject,
        "time": format_time(at),
        "datacontenttype": "application/json",
        "data": data,
    }
    given: dict[str, Any] = {"run_id": "", "gate_id": "", "agent_key": "", "committed_at": at} | fields
    payload = msgspec.json.encode(event).decode()
    return OutsideEvent(
        event_id=event_id, tenant=tenant, type=kind, subject=subject, occurred_at=at, payload=payload, **given
    )


def make_run_ended(info: ChatInfo, run: RunInfo, line: Run) -> OutsideEvent:
    """Create the event for a run's last line."""
    data: dict[str, Any] = {"chatId": info.chat_id, "runId": line.run_id, "agentKey": run.agent_key}
    data["user"] = info.find_requester(line.run_id)
    data["state"] = line.state
    if reason := line.finish_reason or ("stop" if line.state == "completed" else ""):
        data["finishReason"] = reason
    data |= {"startedAt": format_time(run.started_at), "endedAt": format_time(line.updated_at)}
    if line.usage:
        data["usage"] = line.usage
    return make_event(
        info.owner.tenant,
        RUN_ENDED,
        line.uuid,
        info.chat_id,
        line.updated_at,
        data,
        run_id=line.run_id,
        agent_key=run.agent_key,
    )


def _make_gate_events(info: ChatInfo, line: Event, gate: GateEvent) -> Iterable[OutsideEvent]:
    """Return the events that the gate opened, and that it will be about to expire."""
    data: dict[str, Any] = {"chatId": info.chat_id, "runId": line.run_id, "agentKey": gate.agent_key}
    data |= {"gateId": gate.gate_id, "kind": gate.kind, "toolId": gate.tool_id, "toolName": gate.tool_name}
    data |= {"openedAt": format_time(gate.timestamp)}
    if gate.expires_at:
        data["expiresAt"] = format_time(gate.expires_at)
    fields: dict[str, Any] = {"run_id": line.run_id, "gate_id": gate.gate_id, "agent_key": gate.agent_key}
    fields |= {"committed_at": line.updated_at}
    tenant, subject = info.owner.tenant, info.chat_id
    yield make_event(tenant, GATE_OPENED, line.uuid, subject, gate.timestamp, data, **fields)
    if gate.expires_at:
        left_ms = min(max(gate.expires_at - gate.timestamp, 0) // EXPIRING_SHARE, EXPIRING_MS_MAX)
        due_at = gate.expires_at - left_ms
        yield make_event(tenant, GATE_EXPIRING, line.uuid, subject, due_at, data, **fields, due_at=due_at)


def _make_step_event(info: ChatInfo, run: RunInfo, line: Event, gate: GateEvent) -> OutsideEvent:
    data: dict[str, Any] = {"chatId": info.chat_id, "runId": line.run_id, "agentKey": run.agent_key}
    data |= {"gateId": gate.gate_id} | ({"to": gate.to} if gate.to else {})
    return make_event(
        info.owner.tenant,
        GATE_STEPS[gate.step],
        line.uuid,
        info.chat_id,
        gate.timestamp,
        data,
        run_id=line.run_id,
        gate_id=gate.gate_id,
        agent_key=run.agent_key,
        committed_at=line.updated_at,
    )


def _withdraw(
    events: list[OutsideEvent],
    withdrawn: list[tuple[str, str | None]],
    run_id: str,
    gate_id: str | None,
    *,
    has_gates: bool,
) -> None:
    if has_gates:
        events[:] = [
            event
            for event in events
            if not event.due_at or event.run_id != run_id or gate_id not in (None, event.gate_id)
        ]
        withdrawn.append((run_id, gate_id))
