"""Frontend tools, including ask_human: the run waits for what a person submits."""

from __future__ import annotations

import msgspec

from headrace.v1 import agent_pb2, common_pb2, tools_pb2
from services.orchestrator.calls import outcomes
from services.orchestrator.calls.gates.gate import wait_at_gate
from services.orchestrator.calls.result_schema import ASK_HUMAN, Question, find_result_schema
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.waits import Submission
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms


async def execute_frontend(scope: Scope, peers: Peers, call: Call) -> tools_pb2.ToolOutcome:
    submission = await (_wait_for_program if call.is_programs else _wait_for_person)(scope, call)
    if submission is not None:
        return tools_pb2.ToolOutcome(ok=True, result=outcomes.truncate_result(_read_text(submission.payload)))
    if call.name.casefold() == ASK_HUMAN:
        question = msgspec.json.decode(call.effective, type=Question)
        if question.default and not question.required:
            return outcomes.make_success(answer=question.default, expired=True)
    return outcomes.make_failure("expired")


def _read_text(payload: str) -> str:
    """Return what a submission says: a JSON string's text, which models read better than its escapes, else the JSON."""
    if not payload.startswith('"'):
        return payload
    try:
        return msgspec.json.decode(payload, type=str)
    except msgspec.DecodeError:
        return payload


def find_answerers(call: Call) -> common_pb2.Answerers | None:
    """Return who may answer the call of a frontend tool; None: the requester."""
    return call.tool.answerers if call.tool is not None and call.tool.HasField("answerers") else None


async def _wait_for_program(scope: Scope, call: Call) -> Submission | None:
    with scope.run.waiting():
        return await scope.run.waits.wait(call.tool_id, call.wait_left_ms / 1000)


async def _wait_for_person(scope: Scope, call: Call) -> Submission | None:
    gate = agent_pb2.GateOpen(
        gate_id=call.tool_id,
        kind="question" if call.name.casefold() == ASK_HUMAN else "form",
        agent_key=scope.agent.key,
        tool_id=call.tool_id,
        tool_name=call.name,
        viewport_key=call.viewport_key,
        expires_at=now_ms() + call.wait_left_ms,
        answerers=find_answerers(call),
        result_schema=find_result_schema(call) or None,
    )
    end = await wait_at_gate(scope, gate, call)
    if end.closing:
        await scope.record(*end.closing, is_patient=True)
    return end.submission
