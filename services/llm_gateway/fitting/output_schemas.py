"""Schemas of answers in the form that Claude's structured outputs accept.

Objects must be closed; bounds, patterns and recursion are refused
(https://platform.claude.com/docs/en/build-with-claude/structured-outputs, 2026-11). What a schema loses here is
added to its description, and the answer is checked against the original schema.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

from services.llm_gateway.fitting.schemas import DEPTH_MAX, Schema, describe_lost, find_target

SCHEMAS_MAX = 2_000
"""Maximum schemas within a form: each choice of types and each reference repeats those inside."""

_KEPT = frozenset({"type", "title", "description", "default", "enum", "const", "required", "$ref"})
_IN_MAPS = ("properties", "$defs", "definitions")
_IN_LISTS = {"anyOf": "anyOf", "oneOf": "anyOf", "allOf": "allOf"}

_FORMATS = frozenset(
    {"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
)


class _Unfit(Exception):
    """The schema cannot be expressed: an object of any properties, recursion, or too many schemas."""


@lru_cache(maxsize=1024)  # each turn has the same form
def close_schema(text: str) -> str | None:
    """Return the schema with closed objects; None if it permits objects with unnamed properties, or is recursive."""
    try:
        root = json.loads(text)  # keeps numbers of any size
        return json.dumps(_Form(root).close(root, 0, frozenset()), ensure_ascii=False, separators=(",", ":"))
    except (ValueError, RecursionError, _Unfit):
        return None


class _Form:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = SCHEMAS_MAX

    def close(self, schema: Any, depth: int, inside: frozenset[str]) -> Any:
        """Return the closed schema; `inside` are the references followed."""
        if not isinstance(schema, dict):
            return {}
        self._left -= 1
        if depth > DEPTH_MAX or self._left < 0:
            raise _Unfit
        kinds: Any = schema.get("type")
        if isinstance(kinds, list):
            return {"anyOf": [self.close({**schema, "type": kind}, depth + 1, inside) for kind in kinds]}
        if kinds == "null":
            return {"type": "null"}
        self._follow(schema.get("$ref"), depth, inside)
        fitted: Schema = {}
        lost: Schema = {}
        for key, value in schema.items():
            if key in _IN_MAPS and isinstance(value, dict):
                fitted[key] = {name: self.close(inner, depth + 1, inside) for name, inner in value.items()}
            elif key in _IN_LISTS and isinstance(value, list):
                fitted[_IN_LISTS[key]] = [self.close(inner, depth + 1, inside) for inner in value]
            elif key == "items" and isinstance(value, dict):
                fitted[key] = self.close(value, depth + 1, inside)
            elif key in _KEPT or (key == "format" and value in _FORMATS) or (key == "minItems" and value in (0, 1)):
                fitted[key] = value
            elif key not in ("$schema", "$id", "$comment", "additionalProperties"):
                lost[key] = value
        if kinds == "object" or "properties" in schema:
            if not schema.get("properties") or isinstance(schema.get("additionalProperties"), dict):
                raise _Unfit
            fitted["additionalProperties"] = False
        return describe_lost(fitted, lost)

    def _follow(self, reference: Any, depth: int, inside: frozenset[str]) -> None:
        """Check the target of a reference."""
        if reference is None:
            return
        target = find_target(self._root, reference)
        if target is None or reference in inside:
            raise _Unfit
        self.close(target, depth + 1, inside | {reference})
