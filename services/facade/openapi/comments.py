"""Comments of the protos, which `make gen` stores along with the stubs."""

from __future__ import annotations

from functools import cache
from importlib import resources

import orjson


def find_comment(full_name: str) -> str:
    """Return the comment of a message, field or RPC; empty if it has none."""
    return _load_comments().get(full_name, "")


@cache
def _load_comments() -> dict[str, str]:
    return orjson.loads((resources.files("headrace.v1") / "comments.json").read_bytes())
