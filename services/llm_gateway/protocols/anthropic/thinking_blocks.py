"""The thinking blocks of one answer, kept to be handed back: Anthropic checks that they are as it sent them.

https://platform.claude.com/docs/en/build-with-claude/extended-thinking, "Preserving thinking blocks" (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from services.llm_gateway.protocols.anthropic.events import Block

KIND: Final = "thinking_blocks"


class ThinkingBlocks:
    """Blocks by the stream's index, fragments put together."""

    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, str]] = {}
        self._texts: dict[int, list[str]] = {}

    def begin_block(self, index: int, block: Block) -> None:
        """A block starts: `thinking`, filled by what follows, or `redacted_thinking`, complete."""
        if block.type == "redacted_thinking":
            self._blocks[index] = {"type": block.type, "data": block.data or ""}
            return
        self._blocks[index] = {"type": "thinking"}
        self._texts[index] = [block.thinking or ""]
        if block.signature:
            self.add_signature(index, block.signature)

    def add_text(self, index: int, text: str) -> None:
        """The block goes on."""
        if (texts := self._texts.get(index)) is not None:
            texts.append(text)

    def add_signature(self, index: int, signature: str) -> None:
        """A piece of the block's signature."""
        if (block := self._blocks.get(index)) is not None:
            block["signature"] = block.get("signature", "") + signature

    def build_items(self) -> list[dict[str, Any]]:
        """The blocks as the provider wants them back, in order."""
        return [self._build_item(index, block) for index, block in self._blocks.items()]

    def _build_item(self, index: int, block: dict[str, str]) -> dict[str, Any]:
        texts = self._texts.get(index)
        return block if texts is None else {"type": "thinking", "thinking": "".join(texts)} | block
