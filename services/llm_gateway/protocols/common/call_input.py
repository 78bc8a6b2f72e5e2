"""The arguments of a call as an object."""

from __future__ import annotations

from typing import Any

import orjson


def parse_input(text: str) -> Any:
    """Return the input of a tool, numbers as the model wrote them; an empty one of an answer that was cut."""
    try:
        is_object = isinstance(orjson.loads(text), dict)
    except orjson.JSONDecodeError:
        is_object = False
    return orjson.Fragment(text) if is_object else {}
