"""Items that a provider requires back unchanged, in Message.provider_state: an answer's blocks in their order.

They are never sent to other providers or models, which refuse foreign signatures
(https://github.com/vybestack/llxprt-code/issues/2335, 2026-07). The message itself contains texts and calls.
The state has their lengths and positions, with the fields that only the provider reads; everything else is kept
unchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson


def pack_state(provider: str, model: str, items_by_kind: Mapping[str, list[dict[str, Any]]]) -> str:
    return orjson.dumps({"provider": provider, "model": model, **items_by_kind}).decode()


def is_models_own(state: str, provider: str, model: str) -> bool:
    """Return whether that model made the state; earlier versions did not store the model."""
    decoded = _decode(state)
    return decoded.get("provider") == provider and decoded.get("model", model) == model


def unpack_state(state: str, provider: str, kind: str) -> list[dict[str, Any]]:
    """Return the items of that kind; empty if they are another provider's."""
    decoded = _decode(state) if state else {}
    items = decoded.get(kind) if decoded.get("provider") == provider else None
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


def _decode(state: str) -> dict[str, Any]:
    try:
        decoded = orjson.loads(state)
    except orjson.JSONDecodeError:
        return {}
    return decoded if isinstance(decoded, dict) else {}


Block = dict[str, Any]

CHARS: Final = "chars"
"""Member with a text's length."""

CALL: Final = "call"
"""Marks a call."""

ANTHROPIC_CALL: Final = "tool_use"
"""The type of a call in Anthropic's blocks."""


def fill_text(block: Block, text: str) -> Block | None:
    return block | {"text": text} if text.strip() else None


def order_blocks(
    items: Sequence[Block], text: str, calls: Sequence[Block], fill: Callable[[Block, str], Block | None] = fill_text
) -> list[Block] | None:
    """Return an answer's blocks in their original order; None if its text or calls have changed.

    `fill` puts a text into its block; None from it leaves the block out.
    """
    blocks: list[Block] = []
    at = 0
    rest = iter(calls)
    for item in items:
        if CHARS in item:
            piece = text[at : at + item[CHARS]]
            at += item[CHARS]
            block = fill({name: value for name, value in item.items() if name != CHARS}, piece)
        elif CALL in item or item.get("type") == ANTHROPIC_CALL:
            call = next(rest, None)
            block = None if call is None else {name: item[name] for name in item if name != CALL} | call
        else:
            block = item
        if block is not None:
            blocks.append(block)
    return blocks if at == len(text) and next(rest, None) is None else None
