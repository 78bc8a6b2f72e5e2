"""Cost of checking a value against a JSON Schema, estimated before the check.

The library has no budget and holds the interpreter. A schema of 2 kB with references that fan out is evaluated 10^9
times at each value, and one that also refers to itself grows with each level of the value.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import lru_cache
from typing import Any, TypeAlias
from urllib.parse import unquote

import re2

PARTS_MAX = 10_000
"""Maximum parts of a schema with its references expanded; honest schemas have some hundreds."""

PATTERNS_MAX = 200

PATTERN_SIZES_MAX = 30_000
"""Maximum instructions of a schema's patterns together, 10 ms to compile; `^.{1,255}$` has 2,300. Further patterns are
not checked."""

PATTERN_MEMORY_BYTES_MAX = 256 * 1024
"""Maximum memory of one pattern in RE2, some 10,000 instructions."""

ENUM_VALUES = 10
"""Values of an `enum` that count as one more part."""

STRING_CHARS = 100
"""Length of a string that counts as one more value, because patterns read it."""

EVALUATIONS_MAX = 5_000_000
"""Maximum evaluations of one part at one value: 50 ms."""

SCANS_MAX = 10_000_000
"""Maximum characters read by patterns, times the instructions of each: 70 ms if its states are too many to be kept."""

STEPS_MAX = 500_000
"""Maximum steps of counting them if references are circular: 300 ms."""

_HERE = ("allOf", "anyOf", "oneOf")
_HERE_ONE = ("not", "if", "then", "else")
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_EACH_FIELD = ("additionalProperties", "unevaluatedProperties", "propertyNames")
_EACH_ITEM = ("items", "additionalItems", "unevaluatedItems", "contains")

_Node: TypeAlias = dict[str, Any]
_Path: TypeAlias = tuple[str | int, ...]
_Counts: TypeAlias = "Counter[int]"
"""How often a part is evaluated at one value, by its id."""

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = PATTERN_MEMORY_BYTES_MAX

_UNICODE = re.compile(r"\\u([0-9A-Fa-f]{4})")


@lru_cache(PATTERNS_MAX)
def measure_pattern(pattern: str) -> int:
    """Return the number of a pattern's instructions; 0 if it has no linear form, or too many."""
    try:
        return re2.compile(_UNICODE.sub(r"\\x{\1}", pattern), _OPTIONS).programsize
    except (re2.error, UnicodeEncodeError):
        return 0


class SchemaCost:
    """Measures a parsed schema, which must not change while this is used."""

    def __init__(self, schema: _Node) -> None:
        self._root = schema
        self._nodes: dict[int, _Node] = {}
        self._anchors: dict[str, _Node] = {}
        self.patterns = 0
        self.unfit_patterns: list[_Path] = []
        """Where patterns are that are not checked."""
        self._scans: dict[int, int] = {}
        """Instructions of each part's pattern."""
        self._name_scans: dict[int, int] = {}
        """Instructions of each part's patterns of names."""
        self._pattern_size_max = self._pattern_sizes = 0
        self._items_listed = 0
        """Length of the longest list of items' schemas."""
        self._read(schema)
        self._here: dict[int, _Counts] = {}
        self._sizes: dict[int, int] = {}
        self.is_recursive = False
        try:
            self.parts = self._count_parts(schema, set())
            """Size with all references expanded, if none are circular."""
        except RecursionError:  # a long chain of references
            self.parts = PARTS_MAX + 1

    def is_affordable(self, value: Any, evaluations_max: int = EVALUATIONS_MAX) -> bool:
        """Return whether checking a value takes at most so many evaluations, and SCANS_MAX."""
        if not self.is_recursive:
            evaluations = weigh_value(value, evaluations_max) * self.parts
            if evaluations <= evaluations_max and evaluations * STRING_CHARS * self._pattern_size_max <= SCANS_MAX:
                return True
        evaluations = steps = scans = 0
        found: dict[tuple[int, int | str], _Counts] = {}
        waiting = [(value, self._find_here(id(self._root), frozenset()))]
        sums = {id(waiting[0][1]): self._sum(waiting[0][1])}
        while waiting:
            value, counts = waiting.pop()
            total, scan_size, name_scan_size = sums[id(counts)]
            if isinstance(value, str):
                evaluations += (1 + len(value) // STRING_CHARS) * total
                scans += len(value) * scan_size
            else:
                evaluations += total
            steps += 1
            if evaluations > evaluations_max or steps > STEPS_MAX or scans > SCANS_MAX:
                return False
            if not isinstance(value, dict | list):
                continue
            for place, one in value.items() if isinstance(value, dict) else enumerate(value):
                key = id(counts), place if isinstance(place, str) else min(place, self._items_listed)
                if (below := found.get(key)) is None:
                    below = found[key] = self._find_below(counts, place)
                    sums[id(below)] = self._sum(below)
                    steps += len(counts)
                if isinstance(place, str):  # parts below may be those of propertyNames
                    scans += len(place) * (name_scan_size + sums[id(below)][1])
                if below:
                    waiting.append((one, below))
        return True

    def _sum(self, counts: _Counts) -> tuple[int, int, int]:
        """Return the evaluations at a value, and the instructions of patterns that read it and its fields' names."""
        scans = sum(self._scans.get(key, 0) * count for key, count in counts.items()) if self._scans else 0
        names = sum(self._name_scans.get(key, 0) * count for key, count in counts.items()) if self._name_scans else 0
        return counts.total(), scans, names

    def _read(self, schema: _Node) -> None:
        waiting: list[tuple[Any, _Path]] = [(schema, ())]
        while waiting:
            node, path = waiting.pop()
            if isinstance(node, dict):
                self._nodes[id(node)] = node
                for name in ("$id", "id", "$anchor", "$dynamicAnchor"):
                    if isinstance(node.get(name), str):
                        self._anchors[node[name].removeprefix("#")] = node
                self._read_patterns(node, path)
                for name in ("items", "prefixItems"):
                    if isinstance(listed := node.get(name), list):
                        self._items_listed = max(self._items_listed, len(listed))
                waiting += [(below, (*path, name)) for name, below in node.items()]
            elif isinstance(node, list):
                waiting += [(below, (*path, place)) for place, below in enumerate(node)]

    def _read_patterns(self, node: _Node, path: _Path) -> None:
        named = node.get("patternProperties")
        found: list[tuple[str, dict[int, int], _Path]] = [
            (name, self._name_scans, (*path, "patternProperties", name))
            for name in (named if isinstance(named, dict) else ())
        ]
        if isinstance(pattern := node.get("pattern"), str):
            found.append((pattern, self._scans, (*path, "pattern")))
        self.patterns += len(found)
        for pattern, scans, place in found[: PATTERNS_MAX + 1]:
            size = measure_pattern(pattern) if self.patterns <= PATTERNS_MAX else 0
            if not size or self._pattern_sizes + size > PATTERN_SIZES_MAX:
                self.unfit_patterns.append(place)
                continue
            self._pattern_sizes += size
            self._pattern_size_max = max(self._pattern_size_max, size)
            scans[id(node)] = scans.get(id(node), 0) + size

    def _resolve(self, reference: str) -> _Node:
        document, _, fragment = reference.partition("#")
        node: Any = self._anchors.get(document, self._root) if document else self._root
        if fragment and not fragment.startswith("/"):
            return self._anchors.get(fragment, self._root)
        for part in unquote(fragment).split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(node, list) and name.isdecimal() and int(name) < len(node):
                node = node[int(name)]
            else:
                node = node.get(name) if isinstance(node, dict) else None
        # An unresolved reference counts as the whole schema.
        return node if isinstance(node, dict) else self._root if node is None else {}

    def _list_targets(self, node: _Node) -> list[_Node]:
        return [self._resolve(node[name]) for name in _REFERENCES if isinstance(node.get(name), str)]

    def _count_parts(self, node: _Node, above: set[int]) -> int:
        """Count a part and all its subparts. Depth is bounded by that of the JSON and by the number of references."""
        key = id(node)
        if key in above:
            self.is_recursive = True
            return 1
        if key not in self._sizes:
            above.add(key)
            enum = node.get("enum")
            size = 1 + (len(enum) // ENUM_VALUES if isinstance(enum, list) else 0)
            below = [one for one in _list_parts(node) if isinstance(one, dict)]
            size += sum(self._count_parts(one, above) for one in [*below, *self._list_targets(node)])
            above.remove(key)
            self._sizes[key] = size
        return self._sizes[key]

    def _find_here(self, key: int, above: frozenset[int]) -> _Counts:
        """Return the parts evaluated at the value that a part applies to, including itself."""
        if key in above:
            return Counter()
        if key not in self._here:
            node = self._nodes[key]
            found = Counter({key: 1})
            parts = [one for name in _HERE if isinstance(node.get(name), list) for one in node[name]]
            parts += [node[name] for name in _HERE_ONE if name in node]
            if isinstance(dependent := node.get("dependentSchemas"), dict):
                parts += dependent.values()
            for one in [*(part for part in parts if isinstance(part, dict)), *self._list_targets(node)]:
                found += self._find_here(id(one), above | {key})
            self._here[key] = found
        return self._here[key]

    def _find_below(self, counts: _Counts, place: int | str) -> _Counts:
        """Return the parts evaluated at a field or an item of a value, given the `counts` evaluated at the value."""
        list_parts = _list_field_parts if isinstance(place, str) else _list_item_parts
        found: _Counts = Counter()
        for key, count in counts.items():
            for part in list_parts(self._nodes[key], place):
                if isinstance(part, dict):
                    for below, times in self._find_here(id(part), frozenset()).items():
                        found[below] += count * times
        return found


def weigh_value(value: Any, weight_max: int) -> int:
    """Return the number of values in parsed JSON; long strings count more; counting ends above `weight_max`."""
    weight, waiting = 0, [value]
    while waiting and weight <= weight_max:
        one = waiting.pop()
        weight += 1 + len(one) // STRING_CHARS if isinstance(one, str) else 1
        if isinstance(one, dict):
            waiting += one.values()
            weight += sum(len(name) // STRING_CHARS for name in one)
        elif isinstance(one, list):
            waiting += one
    return weight


def _list_parts(node: _Node) -> list[Any]:
    parts: list[Any] = []
    for name, value in node.items():
        if name in ("properties", "patternProperties", "dependentSchemas", "dependencies") and isinstance(value, dict):
            parts += value.values()
        elif name in (*_HERE, "prefixItems", "items") and isinstance(value, list):
            parts += value
        elif name in (*_HERE_ONE, *_EACH_FIELD, *_EACH_ITEM):
            parts.append(value)
    return parts


def _list_field_parts(node: _Node, name: Any) -> list[Any]:
    properties, patterns = node.get("properties"), node.get("patternProperties")
    parts = [properties[name]] if isinstance(properties, dict) and name in properties else []
    parts += patterns.values() if isinstance(patterns, dict) else []
    return parts + [node[each] for each in _EACH_FIELD if each in node]


def _list_item_parts(node: _Node, at: Any) -> list[Any]:
    parts: list[Any] = []
    for name in ("prefixItems", "items"):
        if isinstance(listed := node.get(name), list) and at < len(listed):
            parts.append(listed[at])
    return parts + [node[each] for each in _EACH_ITEM if each in node]
