"""The blocks of an answer in their order, as Converse wants them back: thoughts with their signatures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from services.llm_gateway.protocols.common.answer_order import CALL, CHARS

if TYPE_CHECKING:
    from services.llm_gateway.protocols.bedrock.events import Reasoning

KIND: Final = "content_blocks"

REASONING: Final = "reasoningContent"


class AnswerBlocks:
    def __init__(self) -> None:
        self._blocks: dict[int, dict[str, Any]] = {}
        self._texts: dict[int, list[str]] = {}
        """Pieces of thoughts, by the block's index."""

    def count_text(self, index: int, text: str) -> None:
        block = self._blocks.setdefault(index, {CHARS: 0})
        if CHARS in block:
            block[CHARS] += len(text)

    def begin_call(self, index: int) -> None:
        self._blocks[index] = {CALL: True}

    def add_reasoning(self, index: int, piece: Reasoning) -> None:
        if piece.redacted_content:
            self._blocks[index] = {REASONING: {"redactedContent": piece.redacted_content}}
            return
        block = self._blocks.setdefault(index, {REASONING: {"reasoningText": {"text": ""}}})
        whole = piece.reasoning_text
        text, signature = (piece.text, piece.signature) if whole is None else (whole.text, whole.signature)
        if text:
            self._texts.setdefault(index, []).append(text)
        if signature and (thought := block.get(REASONING, {}).get("reasoningText")) is not None:
            thought["signature"] = thought.get("signature", "") + signature

    def build_items(self) -> list[dict[str, Any]]:
        """Return the blocks; none where nothing but texts and calls has come."""
        if not any(REASONING in block for block in self._blocks.values()):
            return []
        for index, texts in self._texts.items():
            if (thought := self._blocks[index].get(REASONING, {}).get("reasoningText")) is not None:
                thought["text"] = "".join(texts)
        return [block for _, block in sorted(self._blocks.items())]
