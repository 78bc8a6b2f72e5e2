"""A pool of values that a cassette stores once: every request repeats its messages and tools."""

from __future__ import annotations

import json
from typing import Any

POOLED = frozenset({"messages", "tools"})
"""Members with items that are pooled."""

CHARS_MIN = 120
"""Minimum length of a pooled value; shorter ones stay inline."""

REFERENCE = "$value"


class PoolWriter:
    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def take_out(self, given: dict[str, Any]) -> tuple[list[tuple[int, Any]], dict[str, Any]]:
        """Return the new values with their numbers, and the object with references in place of pooled values."""
        new: list[tuple[int, Any]] = []
        return new, {name: self._refer(name, value, new) for name, value in given.items()}

    def _refer(self, name: str, value: Any, new: list[tuple[int, Any]]) -> Any:
        if name in POOLED and isinstance(value, list):
            return [self._keep(item, new) for item in value]
        if isinstance(value, dict):
            return {inner: self._refer(inner, item, new) for inner, item in value.items()}
        return value

    def _keep(self, item: Any, new: list[tuple[int, Any]]) -> Any:
        text = json.dumps(item, sort_keys=True)
        if len(text) < CHARS_MIN:
            return item
        if text not in self._numbers:
            self._numbers[text] = len(self._numbers) + 1
            new.append((self._numbers[text], item))
        return {REFERENCE: self._numbers[text]}


class PoolReader:
    def __init__(self) -> None:
        self._values: dict[int, Any] = {}

    def add(self, number: int, value: Any) -> None:
        self._values[number] = value

    def put_back(self, given: Any) -> Any:
        """Return the object with the pooled values put back; ValueError for an unknown reference."""
        if isinstance(given, dict):
            if given.keys() == {REFERENCE}:
                if given[REFERENCE] not in self._values:
                    raise ValueError(f"there is no value {given[REFERENCE]}")
                return self._values[given[REFERENCE]]
            return {name: self.put_back(value) for name, value in given.items()}
        if isinstance(given, list):
            return [self.put_back(item) for item in given]
        return given
