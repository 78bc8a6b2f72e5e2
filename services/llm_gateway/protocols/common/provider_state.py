"""Items that a provider wants back unchanged, in Message.provider_state.

Other providers never get them, since they refuse foreign signatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping


def pack_state(provider: str, items_by_kind: Mapping[str, list[dict[str, Any]]]) -> str:
    return orjson.dumps({"provider": provider, **items_by_kind}).decode()


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
