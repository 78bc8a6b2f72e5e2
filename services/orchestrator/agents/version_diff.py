"""What is different between two versions of an agent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

import orjson

Json: TypeAlias = Any

NAMES = ("name", "id")
"""Fields by which the objects of a list are the same ones: tools and skills."""

MISSING = object()


@dataclass(frozen=True, slots=True)
class Change:
    path: str
    before: str | None
    """JSON; None: nothing."""
    after: str | None


def diff_documents(before: str, after: str) -> list[Change]:
    """Return the fields that differ between two documents, in the order of their paths."""
    return sorted(_diff(orjson.loads(before), orjson.loads(after), ""), key=lambda change: change.path)


def _diff(before: Json, after: Json, path: str) -> Iterator[Change]:
    if before == after:
        return
    ones, others = _name_fields(before), _name_fields(after)
    if ones is None or others is None:
        yield Change(path, _write(before), _write(after))
        return
    for name in dict.fromkeys((*ones, *others)):
        inner = f"{path}.{name}" if path else name
        yield from _diff(ones.get(name, MISSING), others.get(name, MISSING), inner)


def _name_fields(value: Json) -> dict[str, Json] | None:
    """Return the fields of an object, or the objects of a list by their names; None for any other value."""
    if isinstance(value, dict):
        return cast("dict[str, Json]", value)
    if not isinstance(value, list):
        return None
    entries = cast("list[Json]", value)
    for name in NAMES:
        if entries and all(isinstance(entry, dict) and isinstance(entry.get(name), str) for entry in entries):
            return {entry[name]: entry for entry in entries}
    return None


def _write(value: Json) -> str | None:
    return None if value is MISSING else orjson.dumps(value).decode()
