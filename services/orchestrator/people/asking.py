"""Opens a gate, waits at it and closes it; its opening, end and timed steps are events in the log.

An answer is committed when it is given. The gate's end notifies readers; an owner that takes the run over finds
everything in the log.
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
    """Ask at a gate and return the answer; None if there was none in time. Takes the arguments of `wait_at_gate`."""
    submission, closing = await wait_at_gate(scope, call, opening)
    await scope.record(*closing, is_patient=True)
    return submission


async def wait_at_gate(
    scope: Scope, call: Call, opening: agent_pb2.GateOpen, *others: Message
) -> tuple[Submission | None, list[Message]]:
    """Open the gate of `call`, record `others` with it, and wait until it is answered or expires.

    `opening` holds the gate's specific fields; without `expires_at` the rules' timeout applies. A gate that an earlier
    owner opened keeps its fields and its deadline. The caller must record the returned events. There are none if the
    gate closed before, or never opened because its answer came first.
    """
    run, gate = scope.run, scope.run.gates.get(opening.gate_id)
    if gate.is_closed:
        return gate.answer.result(), []
    is_shown = gate.is_opened or gate.taken is None
    if not gate.is_opened:
        opening.agent_key, opening.tool_id, opening.tool_name = scope.agent.key, call.tool_id, call.name
        opening.expires_at = opening.expires_at or now_ms() + run.answer_timeout_ms
        _set_times(opening)
        _make_texts_visible(opening)
        run.gates.open(opening)
    if not gate.call.done():
        gate.call.set_result(call)
    gate.place = Place.HERE
    try:
        with run.waiting():
            # A wait for people outlasts an unavailable memory, and an opening may be stored as late as needed.
            await scope.record(*([gate.opened] if is_shown else ()), *others, is_patient=True)
            submission = await _wait_in_time(scope, gate)
            if submission is None:
                await gate.flush()  # a vote that came in time is known before the expiry decides
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
    """Set the times of the gate's reminder and escalation, unless it expires before them."""
    rule, now = opening.answerers, now_ms()
    if rule.HasField("remind_after_ms") and now + rule.remind_after_ms < opening.expires_at:
        opening.remind_at = now + rule.remind_after_ms
    if rule.HasField("escalate_after_ms") and now + rule.escalate_after_ms < opening.expires_at:
        opening.escalate_at = now + rule.escalate_after_ms


def _make_texts_visible(opening: agent_pb2.GateOpen) -> None:
    """Escape characters that would hide or reorder the text that people read; some of it comes from tool servers."""
    if opening.HasField("reason"):
        opening.reason = make_visible(opening.reason)
    if opening.HasField("need"):
        opening.need.description = make_visible(opening.need.description)
    if opening.HasField("ask"):
        opening.ask.message = make_visible(opening.ask.message)


async def _wait_in_time(scope: Scope, gate: Gate) -> Submission | None:
    """Wait for the answer, and commit the gate's timed steps as they become due."""
    for at, step in gate.list_due():
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0, at - now_ms()) / 1000):
                await asyncio.shield(gate.answer)
        if gate.answer.done():
            break
        async with gate.answering:
            await gate.flush()
            if gate.foresee() != "accepted" or gate.opened.expires_at <= now_ms():
                break
            # A wait for people outlasts that memory takes nothing: an answer that was accepted, or the gate's end,
            # would be lost with the step.
            await scope.record(step, is_patient=True)
            gate.note(step)
    return await gate.wait(max(0, gate.opened.expires_at - now_ms()) / 1000)
