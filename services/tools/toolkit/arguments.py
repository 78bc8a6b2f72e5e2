"""Checks calls' arguments against the schema; integers of any size stay integers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from services.runtime.formats.json_schema import CompiledSchema, describe_violations, find_schema_problem, load_json
from services.tools.errors import ToolFailed

BYTES_MAX = 4 * 1024 * 1024
"""Limit of a call's arguments, the same as the facade's for a message."""


def check_schema(schema: str) -> None:
    """Raise ValueError where a text is no JSON Schema."""
    if problem := find_schema_problem(schema):
        raise ValueError(problem)


def parse_arguments(text: str, schemas: Iterable[CompiledSchema]) -> dict[str, Any]:
    """Parses and checks arguments, of which an empty text stands for none; raises ToolFailed."""
    value = _load_json(text or "{}")
    if not isinstance(value, dict):
        raise ToolFailed("invalid arguments: $: must be a JSON object")
    if problem := describe_violations(value, *schemas):
        raise ToolFailed(f"invalid arguments: {problem}")
    return value


def _load_json(text: str) -> Any:
    if len(text) > BYTES_MAX:
        raise ToolFailed(f"invalid arguments: $: longer than {BYTES_MAX} characters")
    try:
        return load_json(text)
    except RecursionError:
        raise ToolFailed("invalid arguments: $: nested too deeply") from None
    except UnicodeEncodeError:
        raise ToolFailed("invalid arguments: $: half a surrogate pair is not a character") from None
    except ValueError as error:
        raise ToolFailed(f"invalid arguments: $: not valid JSON: {error}") from None
