"""An answer as the ordered list of the blocks that came, in Message.provider_state.

Texts and calls stand in the message itself. Here are their lengths and places, with the fields that only the provider
reads; everything else is kept as it came.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Block = dict[str, Any]

CHARS: Final = "chars"
"""Of a text: its length."""

CALL: Final = "call"
"""Marks a call."""

ANTHROPIC_CALL: Final = "tool_use"
"""The type that marks a call in Anthropic's blocks."""


def fill_text(block: Block, text: str) -> Block | None:
    return block | {"text": text} if text.strip() else None


def order_blocks(
    items: Sequence[Block], text: str, calls: Sequence[Block], fill: Callable[[Block, str], Block | None] = fill_text
) -> list[Block] | None:
    """Return an answer's blocks as they came; None where its text or calls are not what they were.

    `fill` puts a text into its block; None leaves the block out.
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
