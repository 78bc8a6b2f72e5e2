"""Checks arguments of calls that the orchestrator executes itself; large integers stay whole."""

from __future__ import annotations

from services.orchestrator.run.answers.call import Call
from services.runtime.formats.json_schema import compile_validator, describe_violations, format_path, load_json


def violation(call: Call) -> str:
    """Describe for the model what is wrong with the arguments; empty when nothing is."""
    try:
        value = load_json(call.effective)
    except (ValueError, RecursionError):
        return "invalid arguments: $: not valid JSON"
    if not isinstance(value, dict):
        return "invalid arguments: $: must be a JSON object"
    assert call.tool is not None, "a call without a tool is refused before"
    problem = describe_violations(value, compile_validator(call.tool.parameters or "{}"))
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
    validator = compile_validator(call.tool.parameters or "{}", mask="the value")
    error = next(iter(validator.iter_errors(value)), None)
    return None if error is None else (format_path(error)[1:], error.message)
