"""Answers of people in appended lines: who has answered which gate, and nothing of what was said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from services.memory.log.lines import Event, Known
from services.memory.storage.gates.rows import decode_gate_event

STEPS = frozenset({"vote", "delegated", "asked"})
"""Steps at a gate that are somebody's answer, or send the question on."""


def find_answers(lines: Iterable[Known]) -> Iterator[dict[str, Any]]:
    """Yield what is told of each answer: names of AuditTrail.record_of and details."""
    for line in lines:
        if not isinstance(line, Event):
            continue
        event = decode_gate_event(line.event)
        found = {"by": event.by, "credential": event.credential, "chatId": line.chat_id, "runId": line.run_id}
        if event.type == "request.submit":
            yield found | {"gateId": event.tool_id, "step": "answer"}
        elif event.type == "gate.step" and event.step in STEPS:
            yield found | {"gateId": event.gate_id, "step": event.step, "decision": event.decision}
