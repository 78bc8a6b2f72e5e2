"""Thinking blocks, which Anthropic wants back unchanged.

https://platform.claude.com/docs/en/build-with-claude/extended-thinking (2026-11).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from services.llm_gateway.protocols.anthropic.events import Block

KIND: Final = "thinking_blocks"


class ThinkingBlocks:
    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, str]] = {}
        self._texts: dict[int, list[str]] = {}

    def begin_block(self, index: int, block: Block) -> None:
        if block.type == "redacted_thinking":
            self._blocks[index] = {"type": block.type, "data": block.data or ""}
            return
        self._blocks[index] = {"type": "thinking"}
        self._texts[index] = [block.thinking or ""]
        if block.signature:
            self.add_signature(index, block.signature)

    def add_text(self, index: int, text: str) -> None:
        if (texts := self._texts.get(index)) is not None:
            texts.append(text)

    def add_signature(self, index: int, signature: str) -> None:
        if (block := self._blocks.get(index)) is not None:
            block["signature"] = block.get("signature", "") + signature

    def build_items(self) -> list[dict[str, Any]]:
        return [
            {"type": "thinking", "thinking": "".join(self._texts[index])} | block if index in self._texts else block
            for index, block in self._blocks.items()
        ]
