"""What a remote agent asks, as a question to our user, and the user's answer as a message."""

from __future__ import annotations

from typing import Any

import orjson
from google.protobuf import json_format

from headrace.a2a import a2a_pb2
from headrace.v1 import llm_pb2, tools_pb2
from services.orchestrator.calls.own_tools.catalogue import QUESTION
from services.orchestrator.ids import derived_id
from services.orchestrator.mode_api.remote.artifacts import dump_data, read_text

QUESTION_CHARS_MAX = 8000

SEND_AGAIN, LEAVE = "send it again", "leave it"


def make_tool(timeout_ms: int) -> tools_pb2.Tool:
    """Return the tool that asks the user, which waits for so long."""
    tool = tools_pb2.Tool(timeout_ms=timeout_ms)
    tool.MergeFrom(QUESTION)
    return tool


def make_call(run_id: str, context_id: str, number: int, arguments: dict[str, Any]) -> llm_pb2.ToolCallDelta:
    call_id = f"remote_{derived_id(run_id, context_id, str(number))}"
    return llm_pb2.ToolCallDelta(index=0, id=call_id, name=QUESTION.name, arguments=orjson.dumps(arguments).decode())


def describe_question(status: a2a_pb2.TaskStatus, name: str) -> dict[str, Any]:
    """Return the arguments of the call that asks the user what a task waits for."""
    parts = [*status.message.parts]
    gates = [gate for part in parts if part.HasField("data") and (gate := _describe_gate(part))]
    texts = [read_text(part) for part in parts if part.HasField("text") or part.HasField("url")]
    data = [dump_data(part) for part in parts if part.HasField("data")]
    said = "\n".join(gates or [*texts, *data]) or "It waits for an answer."
    if status.state == a2a_pb2.TASK_STATE_AUTH_REQUIRED:
        said = f"{name} needs an authorization, and goes on once it is told that there is one: {said}"
    return {"question": said[:QUESTION_CHARS_MAX]}


def _describe_gate(part: a2a_pb2.Part) -> str:
    """Return what a gate of another Headrace asks; empty: it is none."""
    gate: Any = json_format.MessageToDict(part.data)
    if not isinstance(gate, dict) or not isinstance(gate.get("gateId"), str):
        return ""
    if isinstance(answers := gate.get("answers"), list):
        return f"{gate.get('toolName')} {gate.get('arguments')}: {' or '.join(map(str, answers))}?"
    try:
        arguments = orjson.loads(str(gate.get("arguments")))
    except orjson.JSONDecodeError:
        return ""
    question = arguments.get("question") if isinstance(arguments, dict) else None
    return question if isinstance(question, str) else ""


def read_answer(result: str) -> str:
    """Return what the user has answered, of the call's result, as text."""
    try:
        given = orjson.loads(result.partition("\n")[0])
    except orjson.JSONDecodeError:
        return result
    if isinstance(given, dict) and isinstance(given.get("answer"), str):
        return given["answer"]
    return given if isinstance(given, str) else orjson.dumps(given).decode()
