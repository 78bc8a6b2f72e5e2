"""Takes parts out of a JSON Schema, so that it allows more values, and never fewer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

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
"""Keywords that mean something else without another."""

IDENTIFIERS = frozenset({"$id", "id", "$schema"})

REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})

DATA = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are no schemas, whatever they look like."""


def leave_out_part(schema: Node, path: Sequence[str | int]) -> None:
    """Take out the part at `path`: the least that is a keyword, or a schema, which becomes `true`."""
    _leave_out_inverted_references(schema)
    _leave_out_unevaluated(schema)
    while (below := _descend(schema, path)) is not None:
        schema, path = below
        _leave_out_unevaluated(schema)
    keyword = str(path[0])
    schemas = _find_schemas(schema, keyword)
    if schemas is None or len(path) == 1 or keyword == "patternProperties":  # whose name is the pattern
        _drop(schema, keyword)
    else:
        schemas[path[1]] = True


def _descend(schema: Node, path: Sequence[str | int]) -> tuple[Node, Sequence[str | int]] | None:
    """Return the schema below that `path` leads into, and the rest of the path; None where the part is no schema's."""
    keyword = str(path[0])
    value = schema.get(keyword)
    if keyword in SINGLE and isinstance(value, dict) and len(path) > 1:
        return value, path[1:]
    schemas = _find_schemas(schema, keyword)
    if schemas is not None and len(path) > 2 and isinstance(below := schemas[path[1]], dict):
        return below, path[2:]
    return None


def _find_schemas(schema: Node, keyword: str) -> Any:
    """Return the keyword's map or list of schemas; None where it has none, or where they are not to be changed."""
    value = schema.get(keyword)
    holds = (isinstance(value, dict) and keyword in MAPS) or (isinstance(value, list) and keyword in LISTS)
    return value if holds and keyword not in INVERTING else None


def leave_out_references(schema: Node) -> None:
    """Take out references to other documents and what names this one; where there is none of these, all references."""
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
    # They refuse what the part that is missing would have allowed.
    node.pop("unevaluatedProperties", None)
    node.pop("unevaluatedItems", None)


def _leave_out_inverted_references(schema: Node) -> None:
    # What they refer to may be what allows more.
    for node in _walk(schema):
        for keyword in INVERTING & node.keys():
            if any(below.keys() & REFERENCES for below in _walk({"not": node[keyword]})):
                _drop(node, keyword)


def _walk(schema: Any) -> Iterator[Node]:
    """Yield the schemas in a schema that are objects, itself first."""
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
