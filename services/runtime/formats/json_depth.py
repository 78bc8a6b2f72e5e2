"""The nesting of parsed JSON, which a parser may take and a later reader may not."""

from __future__ import annotations

from typing import Any

JSON_DEPTH_MAX = 64
"""Nesting of JSON text; deeper text attacks a later parser."""


def measure_json_depth(value: Any) -> int:
    """Return the nesting of parsed JSON: 0 for a scalar, 1 for an empty list."""
    depth, level = 0, [value]
    while containers := [value for value in level if isinstance(value, (dict, list))]:
        depth += 1
        level = [item for one in containers for item in (one.values() if isinstance(one, dict) else one)]
    return depth
