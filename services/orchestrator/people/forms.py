"""Forms and questions, which a person answers, and functions that the calling program performs.

All three are calls of frontend tools. A program's function has no gate.open; its own events notify the program.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator.people.asking import ask
from services.orchestrator.run.answers.call import Call
from services.orchestrator.run.control.gates import Submission
from services.orchestrator.run.scope import Scope
from services.runtime.clock import now_ms

ASK_HUMAN = "ask_human"


class Question(msgspec.Struct):
    """Arguments of ask_human that determine the answer's form."""

    default: str = ""
    required: bool = True
    choices: list[str] = []


async def ask_for_result(scope: Scope, call: Call) -> Submission | None:
    """Wait for a person or program to submit the call's result; None if it does not arrive in time."""
    if call.is_programs:
        with scope.run.waiting():
            return await scope.run.gates.get(call.tool_id).wait(call.wait_left_ms / 1000)
    opening = agent_pb2.GateOpen(
        gate_id=call.tool_id,
        kind="question" if call.name.casefold() == ASK_HUMAN else "form",
        viewport_key=call.viewport_key,
        expires_at=now_ms() + call.wait_left_ms,
        answerers=find_answerers(call),
        result_schema=find_result_schema(call) or None,
    )
    return await ask(scope, call, opening)


def find_answerers(call: Call) -> common_pb2.Answerers | None:
    """Return the users who may answer the call; None: the requester."""
    return call.tool.answerers if call.tool is not None and call.tool.HasField("answerers") else None


def find_result_schema(call: Call) -> str:
    """Return the JSON Schema of the call's result; empty for any JSON."""
    if call.name.casefold() == ASK_HUMAN and not call.is_programs:
        return _make_question_schema(call)
    return call.tool.result_schema if call.tool is not None else ""


def is_schema_known(call: Call) -> bool:
    """Return whether `find_result_schema` is final: a question's schema needs its complete arguments."""
    return call.ended or call.name.casefold() != ASK_HUMAN or call.is_programs


def _make_question_schema(call: Call) -> str:
    """Return the schema: text, or {answer: text}; with choices, one of them."""
    try:
        question = msgspec.json.decode(call.effective, type=Question)
    except msgspec.DecodeError:
        return ""  # the call is refused, so no question is asked
    text: dict[str, Any] = {"type": "string"}
    if question.choices:
        others = [question.default] if question.default else [] if question.required else [""]
        text["enum"] = [*dict.fromkeys([*question.choices, *others])]
    fields = {"required": ["answer"], "properties": {"answer": text}}
    return msgspec.json.encode({"if": {"type": "object"}, "then": fields, "else": text}).decode()
