"""The comments of the protos, which are the reference manual; `make proto` puts them beside the stubs."""

from __future__ import annotations

from functools import cache
from importlib import resources

import orjson


def find_comment(full_name: str) -> str:
    """What the contract says of a message, field or RPC."""
    return _load_comments().get(full_name, "")


@cache
def _load_comments() -> dict[str, str]:
    return orjson.loads((resources.files("headrace.v1") / "comments.json").read_bytes())
