"""Items that a provider wants back unchanged, in Message.provider_state.

Other providers never get them, since they refuse foreign signatures.
"""

from __future__ import annotations

from typing import Any

import orjson


def pack_state(provider: str, kind: str, items: list[dict[str, Any]]) -> str:
    return orjson.dumps({"provider": provider, kind: items}).decode()


def unpack_state(state: str, provider: str, kind: str) -> list[dict[str, Any]]:
    """Return the items of that kind; none when they are another provider's."""
    if not state:
        return []
    try:
        decoded = orjson.loads(state)
    except orjson.JSONDecodeError:
        return []
    if not isinstance(decoded, dict) or decoded.get("provider") != provider:
        return []
    items = decoded.get(kind)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
