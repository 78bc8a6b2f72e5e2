"""What happens to a gate that nobody answers: people are reminded, then others may answer too. Each happens once."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from headrace.v1 import agent_pb2
from services.orchestrator.run.control.gate_state import ESCALATED, REMINDED, GateState
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms


def set_times(gate: agent_pb2.GateOpen) -> None:
    """Set when the gate, which opens now, is to remind and to escalate: never where it has ended before."""
    rule, now = gate.answerers, now_ms()
    if rule.HasField("remind_after_ms") and now + rule.remind_after_ms < gate.expires_at:
        gate.remind_at = now + rule.remind_after_ms
    if rule.HasField("escalate_after_ms") and now + rule.escalate_after_ms < gate.expires_at:
        gate.escalate_at = now + rule.escalate_after_ms


def list_due(gate: GateState) -> list[tuple[int, agent_pb2.GateStep]]:
    """Return the steps that time is still to take, with their times; those of an earlier owner are taken."""
    opened, taken = gate.opened, {step.step for step in gate.steps}
    due: list[tuple[int, agent_pb2.GateStep]] = []
    if opened.remind_at and REMINDED not in taken:
        due.append((opened.remind_at, agent_pb2.GateStep(gate_id=opened.gate_id, step=REMINDED)))
    if opened.escalate_at and ESCALATED not in taken:
        names = opened.answerers.escalate_to
        due.append((opened.escalate_at, agent_pb2.GateStep(gate_id=opened.gate_id, step=ESCALATED, to=names)))
    return sorted(due, key=lambda one: one[0])


def find_next_time(gate: GateState) -> int:
    """Return when time next does something to the gate, in Unix milliseconds: a step, or its end."""
    return min([at for at, _ in list_due(gate)] + [gate.opened.expires_at])


async def take_due_steps(scope: Scope, gate: GateState, is_over: asyncio.Event) -> None:
    """Commit each step at its time, until the wait is over."""
    for at, step in list_due(gate):
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, at - now_ms()) / 1000):
                await is_over.wait()
        async with gate.answering:
            await gate.settle()
            if is_over.is_set() or scope.run.waits.foresee_claim(gate.gate_id, "") != "accepted":
                return
            # A wait for people outlasts that memory takes nothing: an answer that was accepted, or the gate's end,
            # would be lost with the step.
            await scope.record(step, is_patient=True)
            gate.note(step)
