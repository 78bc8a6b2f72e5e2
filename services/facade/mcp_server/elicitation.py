"""Presents gates as elicitations: forms with flat fields, which MCP clients can display."""

from __future__ import annotations

from typing import Any

import orjson

from headrace.shown_text import SHOWN_CHARS_MAX, make_arguments_visible, shorten_line
from headrace.v1 import agent_pb2
from services.facade.adapters.gate_answers import APPROVAL, Answer, GateRef, make_answer, parse_text

PLAIN_TYPES = frozenset({"string", "number", "integer", "boolean"})

DECISION = {
    "type": "object",
    "properties": {
        "decision": {"type": "string", "enum": ["approve", "reject"], "title": "Decision"},
        "note": {"type": "string", "title": "Note to the agent"},
    },
    "required": ["decision"],
}
CREDENTIAL = "credential"
ANY_ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string", "title": "Answer", "description": "Text, or JSON"}},
    "required": ["answer"],
}
"""Form for an answer that cannot be expressed in flat fields."""


def build_elicitation(gate: agent_pb2.GateOpen, arguments: str) -> dict[str, Any]:
    """Return the parameters of elicitation/create for a gate; `arguments` are those of the tool call."""
    if gate.kind == CREDENTIAL:
        # A form must not ask for a secret, so it says where to supply the credential.
        message = f"{gate.tool_name}: {gate.reason}. Supply it in the console's inbox, or continue without it."
        return {"mode": "form", "message": message, "requestedSchema": _offer_reject("Go on without it")}
    if gate.kind == APPROVAL and len(arguments) > SHOWN_CHARS_MAX:
        why = f"its arguments have {len(arguments):,} characters, too many to be shown here"
        message = f"{gate.tool_name}: {gate.reason}; {why}. Approve it in the console's inbox, or reject it."
        return {"mode": "form", "message": message, "requestedSchema": _offer_reject("Decision")}
    schema: Any = DECISION if gate.kind == APPROVAL else orjson.loads(gate.result_schema or "null")
    shown = make_arguments_visible(arguments) if gate.kind == APPROVAL else shorten_line(arguments, SHOWN_CHARS_MAX)
    what = f"{gate.tool_name}({shown})"
    text = f"{what}: {gate.reason or 'may it run?'}" if gate.kind == APPROVAL or gate.reason else what
    return {"mode": "form", "message": text, "requestedSchema": schema if _is_plain(schema) else ANY_ANSWER}


def _offer_reject(title: str) -> dict[str, Any]:
    decision = {"type": "string", "enum": ["reject"], "title": title}
    return {"type": "object", "properties": {"decision": decision}, "required": ["decision"]}


def read_response(gate: GateRef, result: dict[str, Any], name: str) -> Answer:
    content = result.get("content")
    is_refused = result.get("action") != "accept"
    if isinstance(content, dict) and content.keys() == {"answer"} and not gate.is_approval:
        content = parse_text(content["answer"])
    return make_answer(gate, content, name, is_refused=is_refused)


def _is_plain(schema: Any) -> bool:
    fields = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(fields, dict) or schema.get("type") != "object":
        return False
    return all(isinstance(one, dict) and one.get("type") in PLAIN_TYPES for one in fields.values())
