"""Checks arguments of calls that the orchestrator executes itself; large integers stay whole."""

from __future__ import annotations

import json
from functools import lru_cache

from jsonschema_rs import Draft202012Validator, ValidationError

from services.orchestrator.run.answers.call import Call
from services.runtime.json_schema import compile_validator, format_violation
from services.runtime.rpc.field_rules import JSON_DEPTH_MAX, measure_json_depth

SCHEMAS_KEPT = 256
"""Installations have fewer tools of these kinds."""

VIOLATIONS_SHOWN_MAX = 5


def violation(call: Call) -> str:
    """Describe for the model what is wrong with the arguments; empty when nothing is."""
    try:
        value = json.loads(call.effective)
    except (ValueError, RecursionError):
        return "invalid arguments: $: not valid JSON"
    if not isinstance(value, dict):
        return "invalid arguments: $: must be a JSON object"
    if measure_json_depth(value) > JSON_DEPTH_MAX:
        return f"invalid arguments: $: nested too deeply, more than {JSON_DEPTH_MAX} levels"
    assert call.tool is not None, "a call without a tool is refused before"
    found = [format_violation(error) for error in _compile_schema(call.tool.parameters or "{}").iter_errors(value)]
    return "invalid arguments: " + "; ".join(found[:VIOLATIONS_SHOWN_MAX]) if found else ""


def problem_of(schema: str) -> str:
    try:
        _compile_schema(schema)
    except ValidationError as error:
        return format_violation(error)
    return ""


@lru_cache(SCHEMAS_KEPT)
def _compile_schema(text: str) -> Draft202012Validator:
    return compile_validator(text)
