"""Opens a gate, waits at it and closes it. Its opening, its end and what time does between are events in the log.

An answer is committed when somebody gives it. The end tells readers, and an owner that takes the run over finds all of
it in the log.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from google.protobuf.message import Message

from headrace.shown_text import make_visible
from headrace.v1 import agent_pb2
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.gates import EXPIRED, Gate, Place, Submission
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms


async def ask(scope: Scope, call: Call, opening: agent_pb2.GateOpen) -> Submission | None:
    """Ask at a gate, and return the answer; None where nobody answered in time. Takes what `wait_at_gate` does."""
    submission, closing = await wait_at_gate(scope, call, opening)
    await scope.record(*closing, is_patient=True)
    return submission


async def wait_at_gate(
    scope: Scope, call: Call, opening: agent_pb2.GateOpen, *beside: Message
) -> tuple[Submission | None, list[Message]]:
    """Open the gate of `call`, record `beside` with it, and wait until it is answered or its time is over.

    `opening` has what is particular to the gate; without `expires_at` it waits as long as the rules say. A gate that an
    earlier owner of the run has opened stays as it was, and so does the time that is left. The events that are returned
    are for the caller to record: none where the gate has closed before, or never opened as its answer came first.
    """
    run, gate = scope.run, scope.run.gates.get(opening.gate_id)
    if gate.is_closed:
        return gate.answer.result(), []
    is_shown = gate.is_opened or gate.taken is None
    if not gate.is_opened:
        opening.agent_key, opening.tool_id, opening.tool_name = scope.agent.key, call.tool_id, call.name
        opening.expires_at = opening.expires_at or now_ms() + run.rules.answer_timeout_ms
        _set_times(opening)
        _make_texts_visible(opening)
        run.gates.open(opening)
    if not gate.call.done():
        gate.call.set_result(call)
    gate.place = Place.HERE
    try:
        with run.waiting():
            # A wait for people outlasts that memory takes nothing; and an opening that is stored later has no end.
            await scope.record(*([gate.opened] if is_shown else ()), *beside, is_patient=True)
            submission = await _wait_in_time(scope, gate)
            if submission is None:
                await gate.settle()  # a vote that came in time is known before the expiry decides
    finally:
        gate.place = Place.PASSED
    close = agent_pb2.GateClose(
        gate_id=gate.gate_id,
        state=EXPIRED if submission is None else "answered",
        answered_by=submission.by or None if submission else None,
        credential=submission.credential or None if submission else None,
    )
    return submission, [close] if is_shown else []


def _set_times(opening: agent_pb2.GateOpen) -> None:
    """Set when the gate, which opens now, is to remind and to escalate: never where it has ended before."""
    rule, now = opening.answerers, now_ms()
    if rule.HasField("remind_after_ms") and now + rule.remind_after_ms < opening.expires_at:
        opening.remind_at = now + rule.remind_after_ms
    if rule.HasField("escalate_after_ms") and now + rule.escalate_after_ms < opening.expires_at:
        opening.escalate_at = now + rule.escalate_after_ms


def _make_texts_visible(opening: agent_pb2.GateOpen) -> None:
    """Escape what would hide or reorder what people read of the gate: tools' servers write some of it."""
    if opening.HasField("reason"):
        opening.reason = make_visible(opening.reason)
    if opening.HasField("need"):
        opening.need.description = make_visible(opening.need.description)
    if opening.HasField("ask"):
        opening.ask.message = make_visible(opening.ask.message)


async def _wait_in_time(scope: Scope, gate: Gate) -> Submission | None:
    """Wait for the answer, and commit the steps of the gate that are due before it."""
    for at, step in gate.list_due():
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, at - now_ms()) / 1000):
                await asyncio.shield(gate.answer)
        if gate.answer.done():
            break
        async with gate.answering:
            await gate.settle()
            if gate.foresee() != "accepted" or gate.opened.expires_at <= now_ms():
                break
            # A wait for people outlasts that memory takes nothing: an answer that was accepted, or the gate's end,
            # would be lost with the step.
            await scope.record(step, is_patient=True)
            gate.note(step)
    return await gate.wait(max(0, gate.opened.expires_at - now_ms()) / 1000)
