"""Schemas of tools' arguments in a form that every provider accepts.

OpenAI and Anthropic require an object at the root, without anyOf and the like next to it, and arrays with their items;
OpenAI requires an object's properties (https://platform.openai.com/docs/guides/function-calling and
https://docs.claude.com/en/docs/agents-and-tools/tool-use, 2026-11). Claude requires draft 2020-12, and properties with
plain names (https://github.com/anthropics/claude-code/issues/34771, 2026-03). The tool's description names what its
schema loses here, and calls are checked against the original schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

DEPTH_MAX = 64

LOST_CHARS_MAX = 600
"""Maximum characters of a schema that a description repeats."""

Schema = dict[str, Any]

_CHOICES = ("anyOf", "oneOf", "allOf")
_UNFIT_AT_ROOT = (*_CHOICES, "not", "enum", "const", "if", "then", "else")
_IN_LISTS = (*_CHOICES, "prefixItems")
_IN_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_INSIDE = ("items", "additionalProperties", "not", "if", "then", "else", "contains", "propertyNames")
_BOUNDS = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties", "minContains", "maxContains"),
)

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")


_PLAIN = re.compile(r"[a-zA-Z0-9_.-]{1,64}")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


_FORMS: dict[str, Callable[[Any], bool]] = {
    "type": lambda value: (
        bool(value) and all(kind in _TYPES for kind in (value if isinstance(value, list) else [value]))
    ),
    "required": lambda value: isinstance(value, list) and all(isinstance(name, str) for name in value),
    "items": lambda value: isinstance(value, dict | list | bool),
    **dict.fromkeys(_IN_MAPS, lambda value: isinstance(value, dict)),
    **dict.fromkeys(_INSIDE[1:], lambda value: isinstance(value, dict | bool)),
    **dict.fromkeys(_BOUNDS, _is_number),
    **dict.fromkeys(("description", "title", "pattern", "format", "$ref"), _is_text),
    **dict.fromkeys(("enum", *_CHOICES), lambda value: isinstance(value, list) and bool(value)),
}
"""Keywords with other forms, such as `required: true` of draft 3 or `exclusiveMinimum: true` of draft 4, have no effect
and are refused by providers."""


@lru_cache(maxsize=4096)  # each turn has the same tools
def fit_schema(text: str, *, has_plain_names: bool = False) -> tuple[str, str]:
    """Return the schema in the form that providers accept, and a description of what it lost; an accepted schema is
    returned unchanged. With `has_plain_names`, properties with other names are only described."""
    try:
        given = json.loads(text) if text else {}  # keeps numbers of any size
    except (ValueError, RecursionError):
        given = {}
    root, lost = _fit_root(_drop_odd(given) if isinstance(given, dict) else {})
    if has_plain_names:
        _leave_out_odd_names(root, lost)
    fitted = _fit_inner(root, 0)
    return (text if fitted == given else _write(fitted)), _describe(lost)


def _fit_root(given: Schema) -> tuple[Schema, Schema]:
    """Return an object schema, and the parts of the given one that it lacks."""
    root = _follow_reference(given, given)
    lost = {key: root[key] for key in _UNFIT_AT_ROOT if key in root}
    fitted = {key: value for key, value in root.items() if key not in lost}
    if fitted.get("type") not in ("object", None, ["object", "null"], ["null", "object"]):
        lost["type"] = fitted["type"]
        fitted = {
            key: value for key, value in fitted.items() if key in ("description", "title", "$defs", "definitions")
        }
    properties, required = dict(_get_map(root, "properties")), list(_get_names(root))
    for choice in _CHOICES:
        branches = [_follow_reference(one, given) for one in root.get(choice) or () if isinstance(one, dict)]
        for branch in branches:
            for name, schema in _get_map(branch, "properties").items():
                known = properties.setdefault(name, schema)
                if known not in (None, schema):
                    choices = known["anyOf"] if isinstance(known, dict) and known.keys() == {"anyOf"} else [known]
                    schema = {"anyOf": choices if schema in choices else [*choices, schema]}
                properties[name] = schema
        needed = [set(_get_names(branch)) for branch in branches]
        if needed:
            required += sorted(set.union(*needed) if choice == "allOf" else set.intersection(*needed))
    fitted["type"] = "object"
    fitted["properties"] = properties
    if required:
        fitted["required"] = [*dict.fromkeys(required)]
    return fitted, lost


def _leave_out_odd_names(root: Schema, lost: Schema) -> None:
    odd = {name: schema for name, schema in root["properties"].items() if not _PLAIN.fullmatch(name)}
    if not odd:
        return
    required = _get_names(root)
    lost["properties"] = odd
    root["properties"] = {name: schema for name, schema in root["properties"].items() if name not in odd}
    root.pop("additionalProperties", None)
    if needed := [name for name in required if name in odd]:
        lost["required"] = needed
        root["required"] = [name for name in required if name not in odd]


def _follow_reference(schema: Schema, root: Schema) -> Schema:
    """Return the schema with its `$ref` replaced by the target, if that is in this document."""
    for _ in range(DEPTH_MAX):
        reference = schema.get("$ref")
        if not isinstance(reference, str) or not reference.startswith("#/"):
            return schema
        found: Any = root
        for key in reference.removeprefix("#/").split("/"):
            found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
        if not isinstance(found, dict):
            return schema
        schema = {**_drop_odd(found), **{key: value for key, value in schema.items() if key != "$ref"}}
    return {}


def _fit_inner(schema: Any, depth: int) -> Any:
    """Complete arrays and objects, and write true and false as objects."""
    if schema is True or depth > DEPTH_MAX:
        return {}
    if schema is False:
        return {"not": {}}
    if not isinstance(schema, dict):
        return {}
    fitted: Schema = {}
    for key, value in _drop_odd(schema).items():
        if key in _IN_MAPS and isinstance(value, dict):
            fitted[key] = {name: _fit_inner(inner, depth + 1) for name, inner in value.items()}
        elif key in _IN_LISTS and isinstance(value, list):
            fitted[key] = [_fit_inner(inner, depth + 1) for inner in value]
        elif key in _INSIDE and isinstance(value, dict):
            fitted[key] = _fit_inner(value, depth + 1)
        elif key == "items" and isinstance(value, list):  # a list per position, before draft 2020-12
            fitted["prefixItems"] = [_fit_inner(inner, depth + 1) for inner in value]
        else:
            fitted[key] = value
    kinds = fitted.get("type")
    has_items = kinds == "array" or (isinstance(kinds, list) and "array" in kinds)
    if has_items and not isinstance(fitted.get("items"), dict):
        fitted["items"] = {}
    if kinds == "object" and "required" in fitted:
        properties = fitted.setdefault("properties", {})
        if isinstance(properties, dict):
            fitted["properties"] = {**{name: {} for name in _get_names(fitted) if name not in properties}, **properties}
    return fitted


def _drop_odd(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key not in _FORMS or _FORMS[key](value)}


def _get_map(schema: Schema, key: str) -> Schema:
    value = schema.get(key)
    return value if isinstance(value, dict) else {}


def _get_names(schema: Schema) -> list[str]:
    value = schema.get("required")
    return [name for name in value if isinstance(name, str)] if isinstance(value, list) else []


def _describe(lost: Schema) -> str:
    if not lost:
        return ""
    words = _write(lost)
    if len(words) > LOST_CHARS_MAX:
        words = f"{words[:LOST_CHARS_MAX]}…"
    return f"The arguments fit this JSON Schema, too: {words}"


def _write(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
