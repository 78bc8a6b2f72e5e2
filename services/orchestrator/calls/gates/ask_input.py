"""Asks a person what the server of a tool wants to know; the call is then executed again with the answers.

Answers are in the log, and gates are named after what is asked: an owner that takes the run over goes on with them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from headrace.v1 import agent_pb2, common_pb2, tools_pb2
from services.orchestrator import ids
from services.orchestrator.calls.gates.gate import wait_at_gate
from services.orchestrator.calls.results import check_payload
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.waits import Submission
from services.orchestrator.run.replay.resume_point import EXPIRED
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms

ANSWERS_MAX = 64
"""Questions of one call: a server that asks on and on is ended by it."""

CANCELLED = {"cancelled": True}
"""What is submitted by whoever does not answer."""

VISITED = {
    "type": "object",
    "properties": {"done": {"type": "boolean", "title": "Done", "description": "I have finished at that address"}},
    "required": ["done"],
}
"""The answer's schema where the person is sent to an address."""


def check_answer(gate: agent_pb2.GateOpen, payload: str) -> None:
    """Raise InvalidRequest where the payload of a submit neither fits what is asked nor refuses it."""
    if not _is_refused(payload):
        check_payload(gate.result_schema, payload)


async def ask_input(scope: Scope, call: Call, needs: Sequence[common_pb2.InputNeed]) -> list[tools_pb2.InputAnswer]:
    """Ask one after the other and return the answers, in the same order."""
    return [await _ask(scope, call, need) for need in needs]


async def _ask(scope: Scope, call: Call, need: common_pb2.InputNeed) -> tools_pb2.InputAnswer:
    run = scope.run
    gate = _make_gate(scope, call, need)
    closed = {close.gate_id: close.state for close in run.recording.find_payloads("gate_close")}
    if closed.get(gate.gate_id) == EXPIRED:
        submission = None
    elif gate.gate_id in closed or run.waits.is_closed(gate.gate_id):
        submission = await run.waits.wait(gate.gate_id, 0)
    else:
        end = await wait_at_gate(scope, gate, call)
        submission = end.submission
        if end.closing:
            await scope.record(*end.closing, is_patient=True)
    return _make_answer(need, submission)


def _make_answer(need: common_pb2.InputNeed, submission: Submission | None) -> tools_pb2.InputAnswer:
    if submission is None:
        return tools_pb2.InputAnswer(name=need.name, action="cancel")
    if _is_refused(submission.payload):
        return tools_pb2.InputAnswer(name=need.name, action="decline")
    if need.HasField("url"):
        done = json.loads(submission.payload)["done"]
        return tools_pb2.InputAnswer(name=need.name, action="accept" if done else "decline")
    return tools_pb2.InputAnswer(name=need.name, action="accept", content=submission.payload)


def _is_refused(payload: str) -> bool:
    try:
        return json.loads(payload) == CANCELLED
    except (ValueError, RecursionError):
        return False


def _make_gate(scope: Scope, call: Call, need: common_pb2.InputNeed) -> agent_pb2.GateOpen:
    at = f" ({need.url})" if need.HasField("url") else ""
    return agent_pb2.GateOpen(
        gate_id=ids.input_id(scope.run.id, call.tool_id, need.name),
        kind="form",
        agent_key=scope.agent.key,
        tool_id=call.tool_id,
        tool_name=call.name,
        reason=f"{need.server} asks: {need.message}{at}",
        expires_at=now_ms() + scope.run.rules.answer_timeout_ms,
        result_schema=need.schema if need.HasField("schema") else msgspec.json.encode(VISITED).decode(),
        ask=need,
    )
