"""The blocks and calls of an answer, built from its events."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.facade.openai_api.events import (
    BlockEnded,
    BlockKind,
    BlocksDropped,
    BlockStarted,
    FunctionCall,
    RunEvent,
    TextDelta,
)


@dataclass(slots=True)
class Block:
    id: str
    kind: BlockKind
    seq: int = 0

    pieces: list[str] = field(default_factory=list[str])
    size_chars: int = 0
    sent_chars: int = 0
    """Characters sent to the caller; more than the block has while it is repeated."""

    is_closed: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def restart_block(self, seq: int) -> None:
        """Clear the text, which is repeated from its start."""
        self.seq, self.pieces, self.size_chars, self.is_closed = seq, [], 0, False

    def add_text(self, text: str) -> None:
        self.pieces.append(text)
        self.size_chars += len(text)

    def take_unsent(self, text: str) -> str:
        """Return the unsent part of the last piece, and count it as sent."""
        new = min(len(text), max(0, self.size_chars - self.sent_chars))
        self.sent_chars += new
        return text[len(text) - new :]


class Output:
    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.calls: list[FunctionCall] = []
        self.dropped_blocks: list[Block] = []

    def apply_event(self, event: RunEvent) -> None:
        match event:
            case BlockStarted() if event.block_id in self.blocks:
                self.blocks[event.block_id].restart_block(event.seq)
            case BlockStarted():
                self.blocks[event.block_id] = Block(event.block_id, event.kind, event.seq)
            case TextDelta() if event.block_id in self.blocks:
                self.blocks[event.block_id].add_text(event.text)
            case BlockEnded() if event.block_id in self.blocks:
                self.blocks[event.block_id].is_closed = True
            case BlocksDropped():
                self.dropped_blocks = [block for block in self.blocks.values() if block.seq > event.from_seq]
                for block in self.dropped_blocks:
                    del self.blocks[block.id]
            case FunctionCall():
                self.calls.append(event)
            case _:
                pass

    def join_text(self, kind: BlockKind) -> str:
        """Join the blocks of a kind with blank lines."""
        return "\n\n".join(block.text for block in self.blocks.values() if block.kind == kind and block.pieces)
