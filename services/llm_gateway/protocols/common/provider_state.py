"""What a provider wants back unseen: kept as JSON in Message.provider_state, with the name of who may have it back.

Another provider, a fallback for instance, refuses signatures that are not its own, so it never gets them.
"""

from __future__ import annotations

from typing import Any

import orjson


def pack_state(provider: str, kind: str, items: list[dict[str, Any]]) -> str:
    """The JSON of a provider's items."""
    return orjson.dumps({"provider": provider, kind: items}).decode()


def unpack_state(state: str, provider: str, kind: str) -> list[dict[str, Any]]:
    """The items of that kind, verbatim; none when they are another provider's, or the state has none."""
    if not state:
        return []
    try:
        read = orjson.loads(state)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(read, dict) or read.get("provider") != provider:
        return []
    items = read.get(kind)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
