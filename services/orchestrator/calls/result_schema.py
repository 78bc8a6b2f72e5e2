"""What forms and questions accept as their result."""

from __future__ import annotations

from typing import Any

import msgspec

from headrace.errors import InvalidRequest
from services.orchestrator.run.answers.call import Call
from services.runtime.formats.json_schema import compile_schema, describe_violations, load_json

ASK_HUMAN = "ask_human"


class Question(msgspec.Struct):
    """Arguments of ask_human that say what an answer is."""

    default: str = ""
    required: bool = True
    choices: list[str] = []


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


def check_payload(schema: str, payload: str) -> None:
    """Raise InvalidRequest with the path and the rule where the payload of a submit does not fit."""
    if not schema:
        return
    validator = compile_schema(schema, mask="it")  # what a person wrote is in no error
    try:
        problem = describe_violations(load_json(payload), validator)
    except (ValueError, RecursionError):
        problem = "$: not valid JSON"
    if problem:
        raise InvalidRequest.of("payload", f"must fit the form's schema: {problem}")
