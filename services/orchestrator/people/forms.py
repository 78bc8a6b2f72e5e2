"""Forms and questions, which a person answers, and functions that the program which asked carries out.

All three are calls of frontend tools. A program's function has no gate.open: its events tell the program.
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
    """Arguments of ask_human that say what an answer is."""

    default: str = ""
    required: bool = True
    choices: list[str] = []


async def ask_for_result(scope: Scope, call: Call) -> Submission | None:
    """Wait for what a person or a program submits as the call's result; None where that does not come in time."""
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
    """Return who may answer the call; None: the requester."""
    return call.tool.answerers if call.tool is not None and call.tool.HasField("answerers") else None


def find_result_schema(call: Call) -> str:
    """Return the JSON Schema of what a person may submit for the call; empty: any JSON."""
    if call.name.casefold() == ASK_HUMAN and not call.is_programs:
        return _make_question_schema(call)
    return call.tool.result_schema if call.tool is not None else ""


def is_schema_known(call: Call) -> bool:
    """Say whether `find_result_schema` is final: a question's is made of its arguments, which must all be there."""
    return call.ended or call.name.casefold() != ASK_HUMAN or call.is_programs


def _make_question_schema(call: Call) -> str:
    """Return the schema of text, or of {answer: text}; with choices the text is one of them."""
    try:
        question = msgspec.json.decode(call.effective, type=Question)
    except msgspec.DecodeError:
        return ""  # the call is refused, and nobody is asked
    text: dict[str, Any] = {"type": "string"}
    if question.choices:
        others = [question.default] if question.default else [] if question.required else [""]
        text["enum"] = [*dict.fromkeys([*question.choices, *others])]
    fields = {"required": ["answer"], "properties": {"answer": text}}
    return msgspec.json.encode({"if": {"type": "object"}, "then": fields, "else": text}).decode()
