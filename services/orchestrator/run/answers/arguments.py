"""Checks arguments of calls that the orchestrator executes itself; large integers stay whole."""

from __future__ import annotations

import json

from services.orchestrator.run.answers.call import Call
from services.runtime.json_schema import compile_validator, describe_violations


def violation(call: Call) -> str:
    """Describe for the model what is wrong with the arguments; empty when nothing is."""
    try:
        value = json.loads(call.effective)
    except (ValueError, RecursionError):
        return "invalid arguments: $: not valid JSON"
    if not isinstance(value, dict):
        return "invalid arguments: $: must be a JSON object"
    assert call.tool is not None, "a call without a tool is refused before"
    problem = describe_violations(value, compile_validator(call.tool.parameters or "{}"))
    return f"invalid arguments: {problem}" if problem else ""
