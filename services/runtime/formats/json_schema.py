"""JSON Schemas of tools' arguments and of answers.

Parts that cannot be applied are left out, so a schema may allow more values than it specifies, but never fewer.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

from jsonschema_rs import (
    Draft4Validator,
    Draft7Validator,
    Draft202012Validator,
    RegexOptions,
    ValidationError,
    Validator,
    validator_cls_for,
)

from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth
from services.runtime.formats.schema_cost import PARTS_MAX, PATTERNS_MAX, SchemaCost

PATTERN_BYTES_MAX = 1024 * 1024
"""Maximum size of a compiled pattern, ten times that of an honest tool."""

MESSAGE_CHARS_MAX = 400
"""Maximum length of a message, which repeats the value."""

VIOLATIONS_SHOWN_MAX = 5
"""Maximum violations shown: enough for a model to correct them all at once."""

LISTED_EVALUATIONS_MAX = 1000
"""Maximum cost of a check that lists all violations: the library creates them all together, 10 to 40 µs each."""

FOUND_EVALUATIONS_MAX = 5000
"""Maximum cost of a check that reports the first violation; its error holds those of each alternative."""

SCHEMAS_KEPT = 256
"""Maximum cached schemas; installations have fewer tools."""


OLDER_FORMS: dict[str, type[Validator]] = {
    "items": Draft7Validator,
    "exclusiveMinimum": Draft4Validator,
    "exclusiveMaximum": Draft4Validator,
}
"""Keywords with another form in an older draft, which schemas without `$schema` may use, too."""

PARTS_LEFT_OUT_MAX = 100
"""Maximum parts of a schema that are left out one by one; schemas with more are not checked."""


class NotChecked(Exception):
    """A value cannot be checked; the text has the reason."""


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    validator: Validator
    cost: SchemaCost
    has_alternatives: bool
    """Whether an error repeats those of each alternative."""
    problem: str
    """Why its text is not a schema in any draft; empty if it is one."""

    def find_errors(self, value: Any) -> list[ValidationError]:
        """Return the errors of a parsed value: all if that is cheap, otherwise the first; empty if there are none.

        Raises:
            NotChecked: The value, or the list of its errors, is too large.
        """
        if measure_json_depth(value) > JSON_DEPTH_MAX:
            raise NotChecked(f"nested too deeply, more than {JSON_DEPTH_MAX} levels")
        if not self.cost.is_affordable(value):
            raise NotChecked("too large to be checked against its schema")
        if self.validator.is_valid(value):
            return []
        if self.cost.is_affordable(value, LISTED_EVALUATIONS_MAX):
            return list(self.validator.iter_errors(value))
        if not self.has_alternatives or self.cost.is_affordable(value, FOUND_EVALUATIONS_MAX):
            try:
                self.validator.validate(value)
            except ValidationError as error:
                return [error]
        raise NotChecked("does not fit its schema, and is too large to say where")


@lru_cache(SCHEMAS_KEPT)
def compile_schema(schema: str, mask: str | None = None) -> CompiledSchema:
    """Compile a JSON Schema of any draft; it fetches nothing, and its patterns run in linear time.

    Parts that cannot be applied are not checked, and never a reason to refuse: patterns without a linear form (such as
    look-aheads), dangling references, malformed keywords, and all of a schema that is too large. Messages repeat the
    value, or show `mask` in its place.

    Raises:
        ValueError: The text is not JSON, or nested too deeply.
    """
    parsed = json.loads(schema)
    if measure_json_depth(parsed) > JSON_DEPTH_MAX:
        raise ValueError(f"nested too deeply, more than {JSON_DEPTH_MAX} levels")
    if not isinstance(parsed, dict):
        problem = "" if isinstance(parsed, bool) else "$: an object or a boolean is expected"
        return CompiledSchema(Draft202012Validator(parsed is not False), SchemaCost({}), False, problem)
    cost = SchemaCost(parsed)
    if cost.parts > PARTS_MAX or cost.patterns > PATTERNS_MAX:
        limits = f"{PARTS_MAX} parts, each reference counted as what it refers to, or {PATTERNS_MAX} patterns"
        problem = f"$: has more than {limits}"
        return CompiledSchema(Draft202012Validator(True), SchemaCost({}), False, problem)
    has_alternatives = '"anyOf"' in schema or '"oneOf"' in schema
    if len(cost.unfit_patterns) > PARTS_LEFT_OUT_MAX:
        return CompiledSchema(Draft202012Validator(True), SchemaCost({}), False, "")
    if cost.unfit_patterns:
        parsed = json.loads(schema)
        for path in cost.unfit_patterns:
            leave_out_part(parsed, path)
        schema = json.dumps(parsed)
    validator, problem = _compile_draft(parsed, schema, mask)
    return CompiledSchema(validator, cost, has_alternatives, problem)


def find_schema_problem(schema: str) -> str:
    """Return why a JSON text is not a schema in any draft, or is too large; empty if it is one, even if parts of it
    cannot be applied."""
    try:
        return compile_schema(schema).problem
    except ValueError as error:
        return f"$: {error}"


def _compile_draft(parsed: dict[str, Any], schema: str, mask: str | None) -> tuple[Validator, str]:
    draft = validator_cls_for(parsed)
    try:
        try:
            return _compile_parts(draft, json.loads(schema), mask, needs_form=True), ""
        except ValidationError as error:
            if not error.instance_path or error.instance_path[-1] not in OLDER_FORMS or "$schema" in parsed:
                raise
            older = OLDER_FORMS[str(error.instance_path[-1])]
            return _compile_parts(older, json.loads(schema), mask, needs_form=True), ""
    except ValidationError as error:
        return _compile_parts(draft, json.loads(schema), mask, needs_form=False), format_violation(error)


def _compile_parts(draft: type[Validator], parsed: dict[str, Any], mask: str | None, needs_form: bool) -> Validator:
    """Compile a schema without the parts that cannot be applied; with `needs_form`, only patterns may be left out."""
    options = RegexOptions(size_limit=PATTERN_BYTES_MAX, dfa_size_limit=PATTERN_BYTES_MAX)
    for _ in range(PARTS_LEFT_OUT_MAX):
        try:
            return draft(json.dumps(parsed), offline=True, pattern_options=options, mask=mask)
        except ValidationError as error:
            if needs_form and error.kind.as_dict().get("format") != "regex":
                raise
            if error.instance_path:
                leave_out_part(parsed, error.instance_path)
            else:
                leave_out_references(parsed)
    return draft(True)


def describe_violations(value: Any, *schemas: CompiledSchema) -> str:
    """Describe for a model the errors of a parsed value; empty if there are none."""
    try:
        found = [format_violation(error) for one in schemas for error in one.find_errors(value)]
    except NotChecked as problem:
        return f"$: {problem}"
    return "; ".join([*dict.fromkeys(found)][:VIOLATIONS_SHOWN_MAX])


def load_json(text: str) -> Any:
    """Parse JSON, with integers of any size.

    Raises:
        UnicodeEncodeError: It has half a surrogate pair, which is not a character and cannot be stored or sent.
        ValueError: It is not JSON; NaN and the infinities, which json.loads accepts, are not.
        RecursionError: It is nested too deeply.
    """
    value = json.loads(text, parse_constant=_refuse_constant)
    json.dumps(value, ensure_ascii=False).encode()
    return value


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def format_path(error: ValidationError) -> str:
    return "$" + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in error.instance_path)


def format_violation(error: ValidationError) -> str:
    message = error.message
    if len(message) > MESSAGE_CHARS_MAX:
        # A message begins with the value and ends with the expectation.
        message = f"{message[: MESSAGE_CHARS_MAX // 2]}…{message[-MESSAGE_CHARS_MAX // 2 :]}"
    return f"{format_path(error)}: {message} (rule: {error.kind.name})"


Node: TypeAlias = dict[str, Any]

MAPS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies"})
"""Keywords with schemas by name."""

LISTS = frozenset({"allOf", "anyOf", "oneOf", "prefixItems", "items"})
"""Keywords with lists of schemas; `items` before 2020-12."""

SINGLE = frozenset({"items", "additionalItems", "additionalProperties", "propertyNames", "then", "else"})
"""Keywords with one schema."""

INVERTING = frozenset({"not", "if", "oneOf", "contains"})
"""Keywords that may allow fewer values where a schema beneath them allows more."""

DEPENDENTS = {
    "properties": ("additionalProperties",),
    "patternProperties": ("additionalProperties",),
    "prefixItems": ("items",),
    "items": ("additionalItems",),
    "if": ("then", "else"),
    "contains": ("minContains", "maxContains"),
    "minContains": ("contains", "maxContains"),
}
"""Keywords whose meaning changes without another one."""

IDENTIFIERS = frozenset({"$id", "id", "$schema"})

REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

DATA = frozenset({"const", "enum", "default", "examples"})
"""Keywords with values that are never schemas."""


def leave_out_part(schema: Node, path: Sequence[str | int]) -> None:
    """Remove the smallest part at `path` that is a keyword, or a schema, which becomes `true`."""
    _leave_out_inverted_references(schema)
    _leave_out_unevaluated(schema)
    while (below := _descend(schema, path)) is not None:
        schema, path = below
        _leave_out_unevaluated(schema)
    keyword = str(path[0])
    schemas = _find_schemas(schema, keyword)
    if schemas is None or len(path) == 1 or keyword == "patternProperties":  # its name is the pattern
        _drop(schema, keyword)
    else:
        schemas[_find_key(schemas, path[1])] = True


def _descend(schema: Node, path: Sequence[str | int]) -> tuple[Node, Sequence[str | int]] | None:
    """Return the schema below that `path` leads into, and the rest of the path; None if the part is not inside a
    schema."""
    keyword = str(path[0])
    value = schema.get(keyword)
    if keyword in SINGLE and isinstance(value, dict) and len(path) > 1:
        return value, path[1:]
    schemas = _find_schemas(schema, keyword)
    if schemas is not None and len(path) > 2 and isinstance(below := schemas[_find_key(schemas, path[1])], dict):
        return below, path[2:]
    return None


def _find_key(schemas: Any, key: str | int) -> str | int:
    """Return a step of a path as a key of the map or list; the library has numbers for names such as "0"."""
    return str(key) if isinstance(schemas, dict) else key


def _find_schemas(schema: Node, keyword: str) -> Any:
    """Return the keyword's map or list of schemas; None if it has none, or if they must not be changed."""
    value = schema.get(keyword)
    holds = (isinstance(value, dict) and keyword in MAPS) or (isinstance(value, list) and keyword in LISTS)
    return value if holds and keyword not in INVERTING else None


def leave_out_references(schema: Node) -> None:
    """Remove references to other documents and identifiers of this one; if there are none, remove all references."""
    _leave_out_inverted_references(schema)
    nodes = list(_walk(schema))
    foreign = [(node, name) for node in nodes for name in node.keys() & IDENTIFIERS]
    references = [(node, name) for node in nodes for name in node.keys() & REFERENCES]
    foreign += [(node, name) for node, name in references if not str(node[name]).startswith("#")]
    for node, name in foreign or references:
        node.pop(name)
    for node in nodes:
        _leave_out_unevaluated(node)


def _drop(node: Node, keyword: str) -> None:
    for name in (keyword, *DEPENDENTS.get(keyword, ())):
        node.pop(name, None)


def _leave_out_unevaluated(node: Node) -> None:
    # They would refuse values that the missing part allows.
    node.pop("unevaluatedProperties", None)
    node.pop("unevaluatedItems", None)


def _leave_out_inverted_references(schema: Node) -> None:
    # The target of a reference may be a part that allows more.
    for node in _walk(schema):
        for keyword in INVERTING & node.keys():
            if any(below.keys() & REFERENCES for below in _walk({"not": node[keyword]})):
                _drop(node, keyword)


def _walk(schema: Any) -> Iterator[Node]:
    """Yield all schemas that are objects, the outermost first."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword, value in list(schema.items()):
        if isinstance(value, dict) and keyword in MAPS:
            beneath = list(value.values())
        else:
            beneath = value if isinstance(value, list) else [value]
        if keyword not in DATA:
            for each in beneath:
                yield from _walk(each)
