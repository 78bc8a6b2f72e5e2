"""A gate: the run waits for a person. Its opening and its end are lines of the log and events.

What a submit decides is committed with the submit; the end tells readers, and an owner that takes the run over finds
all of it in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from google.protobuf.message import Message

from headrace.shown_text import make_visible
from headrace.v1 import agent_pb2
from services.orchestrator.calls.gates.gate_times import list_due, set_times, take_due_steps
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.waits import Submission
from services.orchestrator.run.replay.resume_point import EXPIRED
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms


@dataclass(frozen=True, slots=True)
class GateEnd:
    submission: Submission | None
    """None where nobody answered in time."""
    closing: Sequence[Message]
    """What the caller is to record: nothing for a gate that never opened, as its answer was there before."""


async def wait_at_gate(scope: Scope, gate: agent_pb2.GateOpen, call: Call, *beside: Message) -> GateEnd:
    """Open the gate of `call`, record `beside` with it, and wait until it is answered or its time is over.

    A gate that an earlier owner of the run has opened stays as it was: so does the time that is left.
    """
    run = scope.run
    opened = next((known for known in run.recording.find_payloads("gate_open") if known.gate_id == gate.gate_id), None)
    if opened is None:
        set_times(gate)
        _make_texts_visible(gate)
    run.waits.expect(opened or gate, call)
    with run.waiting():
        if opened is None and not run.waits.is_claimed(gate.gate_id):
            opened = gate
        if events := [*([opened] if opened else ()), *beside]:
            # A wait for people outlasts that memory takes nothing; and an opening that is stored later has no end.
            await scope.record(*events, is_patient=True)
        left_ms = max(0, (opened or gate).expires_at - now_ms())
        submission = await _wait_in_time(scope, gate.gate_id, left_ms / 1000)
        if submission is None and (known := run.waits.find_gate(gate.gate_id)) is not None:
            await known.settle()  # a vote that came in time is known before the expiry decides
    return GateEnd(submission, [_make_close(gate.gate_id, submission)] if opened else [])


def _make_texts_visible(gate: agent_pb2.GateOpen) -> None:
    """Escape what would hide or reorder what people read of the gate: tools' servers write some of it."""
    if gate.HasField("reason"):
        gate.reason = make_visible(gate.reason)
    if gate.HasField("need"):
        gate.need.description = make_visible(gate.need.description)
    if gate.HasField("ask"):
        gate.ask.message = make_visible(gate.ask.message)


async def _wait_in_time(scope: Scope, gate_id: str, timeout_s: float) -> Submission | None:
    """Wait for the answer, and take the steps of the gate that are due meanwhile."""
    waits = scope.run.waits
    known = waits.find_gate(gate_id)
    if known is None or not list_due(known):
        return await waits.wait(gate_id, timeout_s)
    is_over = asyncio.Event()
    stepping = asyncio.create_task(take_due_steps(scope, known, is_over))
    try:
        submission = await waits.wait(gate_id, timeout_s)
    except BaseException:
        stepping.cancel()
        await asyncio.wait([stepping])
        raise
    is_over.set()
    await stepping
    return submission


def _make_close(gate_id: str, submission: Submission | None) -> agent_pb2.GateClose:
    if submission is None:
        return agent_pb2.GateClose(gate_id=gate_id, state=EXPIRED)
    return agent_pb2.GateClose(
        gate_id=gate_id,
        state="answered",
        answered_by=submission.by or None,
        credential=submission.credential or None,
    )
