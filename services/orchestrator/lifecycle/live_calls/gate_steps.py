"""DelegateGate and AskBack: what people do to an open gate without answering it. Each is a line of the log."""

from __future__ import annotations

import asyncio
import re

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2, gates_pb2
from services.orchestrator.lifecycle.live_calls.approval_answers import check_answerer, commit_step
from services.orchestrator.run.control.gate_state import ASKED_BACK, DELEGATED
from services.orchestrator.run.run import Run
from services.runtime.auth.answerers import USER
from services.runtime.auth.identity import require_identity

NOTE_CHARS_MAX = 4000

NAMES_MAX = 16

_NAME = re.compile(r"user:[!-~]{1,128}|role:[!-+\--~]{1,64}")


def check_delegation(request: gates_pb2.DelegateGateRequest) -> None:
    """Raises InvalidRequest."""
    if not 1 <= len(request.to) <= NAMES_MAX:
        raise InvalidRequest.of("to", f"must have 1 to {NAMES_MAX} names")
    if not all(map(_NAME.fullmatch, request.to)):
        raise InvalidRequest.of("to", "must be user:NAME or role:NAME, of the run's tenant")
    _check_note(request.note)


def check_question(request: gates_pb2.AskBackRequest) -> None:
    """Raises InvalidRequest."""
    _check_note(request.note)


def _check_note(note: str) -> None:
    if len(note) > NOTE_CHARS_MAX:
        raise InvalidRequest.of("note", f"must have at most {NOTE_CHARS_MAX} characters")


async def delegate_gate(
    run: Run, request: gates_pb2.DelegateGateRequest, tasks: asyncio.TaskGroup
) -> gates_pb2.DelegateGateResponse:
    """Return when it is committed that others may answer too; they never include the requester under four eyes.

    Raises:
        NotFound: No such gate has been opened.
        InvalidRequest: It is passed to the requester, who may not answer.
        PermissionDenied: The caller may not answer it.
        QueueFull: Too much has happened to the gate.
    """
    step = agent_pb2.GateStep(
        gate_id=request.gate_id, step=DELEGATED, to=request.to, note=request.note or None, request_id=request.request_id
    )
    return gates_pb2.DelegateGateResponse(status=await _take_step(run, step, tasks))


async def ask_back(run: Run, request: gates_pb2.AskBackRequest, tasks: asyncio.TaskGroup) -> gates_pb2.AskBackResponse:
    """Return when a question to the requester, or the requester's reply, is committed; raises as `delegate_gate`."""
    step = agent_pb2.GateStep(
        gate_id=request.gate_id, step=ASKED_BACK, note=request.note, request_id=request.request_id
    )
    return gates_pb2.AskBackResponse(status=await _take_step(run, step, tasks))


async def _take_step(run: Run, step: agent_pb2.GateStep, tasks: asyncio.TaskGroup) -> str:
    """Commit what the caller does; return its word, or `closed` where the gate waits no more."""
    caller, gate = require_identity(), run.waits.find_gate(step.gate_id)
    if gate is None:
        raise NotFound(f"run {run.id} has no gate {step.gate_id!r}", runId=run.id)
    if step.step != ASKED_BACK or caller != run.identity:
        await check_answerer(gate, run.identity, caller)
    if gate.opened.answerers.not_requester and {USER + name for name in run.identity.persons} & {*step.to}:
        raise InvalidRequest.of("to", "names the requester, who may not answer this gate (four eyes)")
    step.by = caller.user
    if caller.credential:
        step.credential = caller.credential
    async with gate.answering:
        await gate.settle()
        if gate.has_step(step.step, caller.user, step.request_id):
            return step.step
        if run.feed.ended or run.waits.foresee_claim(step.gate_id, "") != "accepted":
            return "closed"
        await commit_step(run, gate, step, tasks)
    return step.step
