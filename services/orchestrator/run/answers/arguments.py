"""Checks arguments of calls that the orchestrator executes itself; large integers stay whole."""

from __future__ import annotations

from services.orchestrator.run.answers.call import Call
from services.runtime.formats.json_schema import (
    NotChecked,
    compile_schema,
    describe_violations,
    format_path,
    load_json,
)


def violation(call: Call) -> str:
    """Describe for the model what is wrong with the arguments; empty when nothing is."""
    try:
        value = load_json(call.effective)
    except (ValueError, RecursionError):
        return "invalid arguments: $: not valid JSON"
    if not isinstance(value, dict):
        return "invalid arguments: $: must be a JSON object"
    assert call.tool is not None, "a call without a tool is refused before"
    problem = describe_violations(value, compile_schema(call.tool.parameters or "{}"))
    return f"invalid arguments: {problem}" if problem else ""


def find_violation(call: Call) -> tuple[str, str] | None:
    """Return where the arguments, a JSON object, break the tool's schema first, and what is expected there.

    Neither has the value: this is for an error, which has none.
    """
    assert call.tool is not None, "a call without a tool is refused before"
    try:
        value = load_json(call.effective)
    except RecursionError:
        return "", "it is nested too deeply"
    try:
        errors = compile_schema(call.tool.parameters or "{}", mask="the value").find_errors(value)
    except NotChecked as problem:
        return "", f"it is {problem}"
    return (format_path(errors[0])[1:], errors[0].message) if errors else None
