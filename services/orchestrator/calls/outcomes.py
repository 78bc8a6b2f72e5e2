"""Tool results that the orchestrator makes itself."""

from __future__ import annotations

from typing import Any

import orjson

from headrace.v1 import tools_pb2

RESULT_CHARS_MAX = 30_000

_NOT_EXECUTED = '{"ok":false,"executed":false,'


def make_success(**fields: Any) -> tools_pb2.ToolOutcome:
    return tools_pb2.ToolOutcome(ok=True, result=orjson.dumps({"ok": True, **fields}).decode())


def make_failure(error: str, message: str = "", **fields: Any) -> tools_pb2.ToolOutcome:
    body = {"ok": False, "error": error} | ({"message": message} if message else {}) | fields
    return tools_pb2.ToolOutcome(ok=False, result=orjson.dumps(body).decode())


def make_refusal(error: str, **fields: Any) -> tools_pb2.ToolOutcome:
    body = {"ok": False, "executed": False, "error": error, **fields}
    return tools_pb2.ToolOutcome(ok=False, result=orjson.dumps(body).decode())


def is_refusal(text: str) -> bool:
    """Return whether the result belongs to a call that was not charged to the budget."""
    if not text.startswith(_NOT_EXECUTED):
        return False
    try:
        return orjson.loads(text.partition("\n")[0]).get("error") not in ("denied", "rejected")
    except ValueError:
        return False


def is_rejection(text: str) -> bool:
    """Return whether a person rejected the call."""
    return text.startswith(f'{_NOT_EXECUTED}"error":"rejected"')


def add_notes(text: str, *notes: str) -> str:
    """Add what the model is to know beside the result, on lines of its own."""
    return "\n\n".join([text, *(f"[{note}]" for note in notes if note)])


def truncate_result(text: str) -> str:
    if len(text) <= RESULT_CHARS_MAX:
        return text
    note = f"\n[… cut here: {len(text)} characters in all …]"
    return text[: RESULT_CHARS_MAX - len(note)] + note
