"""Asks a person the questions of a tool's server; the call is then executed again with the answers.

Answers are in the log, and gate ids derive from the questions, so an owner that takes the run over continues with them.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import msgspec

from headrace.v1 import agent_pb2, common_pb2, tools_pb2
from services.orchestrator import ids
from services.orchestrator.people.asking import ask
from services.orchestrator.people.kind import Kind
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.gates import Submission
from services.orchestrator.run.scope import Scope

ANSWERS_MAX = 64
"""Maximum questions per call, which stops a server that keeps asking."""

CANCELLED = {"cancelled": True}
"""Payload of a refusal to answer."""

VISITED = {
    "type": "object",
    "properties": {"done": {"type": "boolean", "title": "Done", "description": "I have finished at that address"}},
    "required": ["done"],
}
"""The answer's schema if the person must visit an address."""


class InputKind(Kind):
    prefix = ids.INPUT

    def check_fit(self, opened: agent_pb2.GateOpen, payload: str) -> None:
        if not _is_refused(payload):
            super().check_fit(opened, payload)


async def ask_input(scope: Scope, call: Call, needs: Sequence[common_pb2.InputNeed]) -> list[tools_pb2.InputAnswer]:
    """Ask the questions one by one and return the answers in the same order."""
    return [_make_answer(need, await ask(scope, call, _make_opening(scope, call, need))) for need in needs]


def _make_opening(scope: Scope, call: Call, need: common_pb2.InputNeed) -> agent_pb2.GateOpen:
    at = f" ({need.url})" if need.HasField("url") else ""
    return agent_pb2.GateOpen(
        gate_id=ids.input_id(scope.run.id, call.tool_id, need.name),
        kind="form",
        reason=f"{need.server} asks: {need.message}{at}",
        result_schema=need.schema if need.HasField("schema") else msgspec.json.encode(VISITED).decode(),
        ask=need,
    )


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
