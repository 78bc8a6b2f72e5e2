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
from typing import Any, Protocol

DEPTH_MAX = 64

REFERENCES_MAX = 200
"""Maximum references that are replaced; later ones become {}."""

CLAUDE, GEMINI, KIMI = "claude", "gemini", "kimi"
"""Vendors with rules of their own, by part of their models' names."""

NOVA = "nova"
"""Amazon's models: the root of a schema has only these keywords, so references are replaced, too: "extraneous key
[definitions] is not permitted" (https://github.com/zed-industries/zed/issues/28521, 2025-04)."""

_ROOT_KEYWORDS = ("type", "properties", "required")

OPENAPI = "openapi"
"""The form of gateways that convert chat/completions for Gemini: any keyword but these makes the request fail with
"Unknown name" (https://github.com/databricks/unity-gateway/issues/491, 2026-09)."""

_OPENAPI_KEYWORDS = frozenset(
    {
        *("type", "format", "title", "description", "nullable", "enum", "default", "properties", "required", "items"),
        *("minimum", "maximum", "minLength", "maxLength", "pattern", "minItems", "maxItems", "anyOf"),
        *("minProperties", "maxProperties"),
    }
)
_OPENAPI_FORMATS = frozenset({"enum", "date-time", "float", "double", "int32", "int64"})

LOST_CHARS_MAX = 600
"""Maximum characters of a schema that a description repeats."""

NO_PARAMETERS = '{"type":"object","properties":{}}'
"""The schema of a tool without arguments."""

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

_PLAIN_PATTERN = re.compile(r"\^(?:[^\\\[\](){}^$]|\((?!\?)|\)|\{[0-9,]{1,9}\}|\[[^\\\[\]]{1,256}\])*\$")
"""Matches patterns that every dialect has. One that is not anchored, or has lookarounds or classes such as `\\p{L}`,
makes OpenAI or llama.cpp refuse the whole request (https://github.com/agigante80/actual-mcp-server/issues/293,
https://github.com/containers/kubernetes-mcp-server/issues/758, 2026)."""

REPEATED_MAX = 100
"""Largest bound of a length. llama.cpp makes rules of all repetitions, and refuses a request with too many
(https://github.com/firecrawl/firecrawl/issues/4512, 2026-09)."""

_LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")


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
def fit_schema(text: str, vendor: str = "") -> tuple[str, str]:
    """Return the schema in the form that a vendor of these names, or any other, accepts, and a description of what it
    lost; an accepted schema is returned unchanged."""
    try:
        given = json.loads(text) if text else {}  # keeps numbers of any size
    except (ValueError, RecursionError):
        given = {}
    root, lost = _fit_root(_drop_odd(given) if isinstance(given, dict) else {})
    if vendor == CLAUDE:
        _leave_out_odd_names(root, lost)
    form = _CommonForm(root, is_kimis=vendor == KIMI)
    if vendor in (GEMINI, OPENAPI, NOVA):
        form = _GeminiForm(root, is_narrow=vendor == OPENAPI)
    fitted = _fit_inner(root, 0, form)
    if vendor == NOVA:
        fitted = {key: fitted[key] for key in _ROOT_KEYWORDS if key in fitted}
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
        found = find_target(root, schema.get("$ref"))
        if found is None:
            return schema
        schema = {**_drop_odd(found), **{key: value for key, value in schema.items() if key != "$ref"}}
    return {}


def find_target(root: Any, reference: Any) -> Schema | None:
    """Return the schema of the document `root` that a reference names; None for any other reference."""
    if not isinstance(reference, str) or not reference.startswith("#/"):
        return None
    found: Any = root
    for key in reference.removeprefix("#/").split("/"):
        found = found.get(key.replace("~1", "/").replace("~0", "~")) if isinstance(found, dict) else None
    return found if isinstance(found, dict) else None


class _Form(Protocol):
    def fit(self, schema: Schema, inside: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        """Return one level of a schema in this form, and the references followed."""
        ...


class _CommonForm:
    """Moves patterns and lengths that some servers refuse into descriptions.

    Kimi refuses a type next to anyOf, and a reference with a keyword that its target has, too
    (https://github.com/MoonshotAI/kimi-code/issues/2661, https://github.com/MoonshotAI/kimi-cli/issues/2061, 2026).
    """

    def __init__(self, root: Schema, *, is_kimis: bool) -> None:
        self._root = root
        self._is_kimis = is_kimis

    def fit(self, schema: Schema, inside: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        if self._is_kimis:
            target = find_target(self._root, schema.get("$ref")) or {}
            schema = {key: value for key, value in schema.items() if key == "$ref" or key not in target}
            if isinstance(choices := schema.get("anyOf"), list) and "type" in schema:
                kind = schema.pop("type")
                schema["anyOf"] = [{"type": kind} | one if isinstance(one, dict) else one for one in choices]
        lost = {key: schema[key] for key in _LENGTHS if _is_number(schema.get(key)) and schema[key] > REPEATED_MAX}
        if isinstance(pattern := schema.get("pattern"), str) and not _PLAIN_PATTERN.fullmatch(pattern):
            lost["pattern"] = pattern
        return describe_lost(schema, lost), inside


def describe_lost(schema: Schema, lost: Schema) -> Schema:
    """Return the schema without these keywords, which its description names."""
    if not lost:
        return schema
    description = " ".join(filter(None, (schema.get("description"), f"It fits {_write(lost)}.")))
    return {key: value for key, value in schema.items() if key not in lost} | {"description": description}


class _GeminiForm:
    """Replaces references by their targets, and removes choices other than texts.

    Gemini refuses a reference with other keywords next to it, and some without
    (https://github.com/anomalyco/opencode/issues/12295, 2026-02). A recursive reference becomes {}.
    """

    def __init__(self, root: Schema, *, is_narrow: bool) -> None:
        self._root = root
        self._left = REFERENCES_MAX
        self._is_narrow = is_narrow

    def fit(self, schema: Schema, inside: frozenset[str]) -> tuple[Schema, frozenset[str]]:
        if self._is_narrow:
            schema = _merge_branches(schema)
        reference = schema.get("$ref")
        if isinstance(reference, str):
            is_followed = reference not in inside and self._left > 0
            self._left -= 1
            schema = _follow_reference(schema, self._root) if is_followed else schema
            inside |= {reference}
        schema = {key: value for key, value in schema.items() if key not in ("$ref", "$defs", "definitions")}
        if isinstance(choices := schema.get("enum"), list):
            schema["enum"] = [choice for choice in choices if isinstance(choice, str) and choice]
        return (_narrow(schema) if self._is_narrow else schema), inside


def _merge_branches(schema: Schema) -> Schema:
    """Merge the branches of `allOf`, and the only branch of `anyOf` and `oneOf` next to null, into their schema."""
    choices = [one for key in ("anyOf", "oneOf") for one in schema.get(key) or () if isinstance(one, dict)]
    branches = [one for one in choices if one.get("type") != "null"]
    merged = {key: value for key, value in schema.items() if key not in _CHOICES}
    if len(branches) < len(choices):
        merged["nullable"] = True
    if len(branches) > 1:
        merged["anyOf"], branches = branches, []
    for branch in (*branches, *(one for one in schema.get("allOf") or () if isinstance(one, dict))):
        properties = {**_get_map(branch, "properties"), **_get_map(merged, "properties")}
        required = [*dict.fromkeys([*_get_names(merged), *_get_names(branch)])]
        merged = {**branch, **merged}
        merged |= ({"properties": properties} if properties else {}) | ({"required": required} if required else {})
    return merged


def _narrow(schema: Schema) -> Schema:
    """Return the schema in the keywords of OPENAPI."""
    narrow = {key: value for key, value in schema.items() if key in _OPENAPI_KEYWORDS}
    if isinstance(constant := schema.get("const"), str):
        narrow["enum"] = [constant]
    kinds = schema.get("type")
    for bound, name, step in (("exclusiveMinimum", "minimum", 1), ("exclusiveMaximum", "maximum", -1)):
        if _is_number(schema.get(bound)):
            narrow.setdefault(name, schema[bound] + (step if kinds == "integer" else 0))
    if isinstance(kinds, list):
        del narrow["type"]
        if "null" in kinds:
            narrow["nullable"] = True
        named = [kind for kind in kinds if kind != "null"]
        if len(named) == 1:
            narrow["type"] = named[0]
        elif named and "anyOf" not in narrow:
            narrow["anyOf"] = [{"type": kind} for kind in named]
    if narrow.get("format") not in _OPENAPI_FORMATS:
        narrow.pop("format", None)
    return narrow


def _fit_inner(schema: Any, depth: int, form: _Form, inside: frozenset[str] = frozenset()) -> Any:
    """Complete arrays and objects, and write true and false as objects; `inside` are the references followed."""
    if schema is True or depth > DEPTH_MAX:
        return {}
    if schema is False:
        return {"not": {}}
    if not isinstance(schema, dict):
        return {}
    schema, inside = form.fit(schema, inside)

    def fit(inner: Any) -> Any:
        return _fit_inner(inner, depth + 1, form, inside)

    fitted: Schema = {}
    for key, value in _drop_odd(schema).items():
        if key in _IN_MAPS and isinstance(value, dict):
            fitted[key] = {name: fit(inner) for name, inner in value.items()}
        elif key in _IN_LISTS and isinstance(value, list):
            fitted[key] = [fit(inner) for inner in value]
        elif key in _INSIDE and isinstance(value, dict):
            fitted[key] = fit(value)
        elif key == "items" and isinstance(value, list):  # a list per position, before draft 2020-12
            fitted["prefixItems"] = [fit(inner) for inner in value]
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
