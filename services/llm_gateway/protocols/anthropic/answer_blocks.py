"""The blocks of an answer in their order, as Anthropic wants them back: thoughts and what only it can read unchanged.

Texts and calls stand in the message itself, and here by their lengths and places alone.
https://platform.claude.com/docs/en/build-with-claude/extended-thinking (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

from services.llm_gateway.protocols.common.call_input import parse_input

if TYPE_CHECKING:
    from services.llm_gateway.protocols.anthropic.events import Block

KIND: Final = "thinking_blocks"

THINKING = ("thinking", "redacted_thinking")


class AnswerBlocks:
    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}
        """What is still being written of a block, by its index: thoughts, or the input of a tool of the provider's."""

    def begin_block(self, index: int, block: Block, raw: bytes) -> None:
        """Begin a block, whose fields `raw` has all."""
        match block.type:
            case "text":
                self._blocks[index] = {"type": "text", "chars": 0}
            case "tool_use":
                self._blocks[index] = {"type": "tool_use"}
            case _:
                self._blocks[index] = orjson.loads(raw)
                self._texts[index] = [block.thinking or ""]

    def count_text(self, index: int, chars: int) -> None:
        """Count what came of a text block; what stands in no such block has no place in the order."""
        if (block := self._blocks.get(index)) is not None and "chars" in block:
            block["chars"] += chars

    def add_text(self, index: int, text: str) -> None:
        if (texts := self._texts.get(index)) is not None:
            texts.append(text)

    def add_signature(self, index: int, signature: str) -> None:
        if (block := self._blocks.get(index)) is not None:
            given = block.get("signature")
            block["signature"] = (given if isinstance(given, str) else "") + signature

    def build_items(self) -> list[dict[str, Any]]:
        """Return the blocks; none where nothing but a text before calls has come."""
        if not self._texts:
            return []
        return [self._complete(index, block) for index, block in self._blocks.items()]

    def _complete(self, index: int, block: dict[str, Any]) -> dict[str, Any]:
        written = "".join(self._texts.get(index, ()))
        if block.get("type") == "thinking":
            return block | {"thinking": written}
        return block | {"input": parse_input(written)} if written else block
