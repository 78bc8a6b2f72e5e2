"""The blocks and calls of an answer, folded from its events."""

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
    """A stretch of text or reasoning."""

    id: str
    kind: BlockKind
    seq: int = 0
    """Where it opened."""

    pieces: list[str] = field(default_factory=list[str])
    size_chars: int = 0
    sent_chars: int = 0
    """How much of it the caller has been sent; more than its size when it is being said again."""

    is_closed: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def restart_block(self, seq: int) -> None:
        """Forget what was said: it is said again."""
        self.seq, self.pieces, self.size_chars, self.is_closed = seq, [], 0, False

    def add_text(self, text: str) -> None:
        self.pieces.append(text)
        self.size_chars += len(text)

    def take_unsent(self, text: str) -> str:
        """The part of the piece just added that the caller has not had; it counts as sent from now on."""
        new = min(len(text), max(0, self.size_chars - self.sent_chars))
        self.sent_chars += new
        return text[len(text) - new :]


class Output:
    """The blocks and calls of one answer, in order. Bounded by what a model may say in a run."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.calls: list[FunctionCall] = []
        self.dropped_blocks: list[Block] = []
        """The blocks that the last `Dropped` has taken away."""

    def apply_event(self, event: RunEvent) -> None:
        """Take the next event that is told."""
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
        """All blocks of a kind, with a blank line between them."""
        return "\n\n".join(block.text for block in self.blocks.values() if block.kind == kind and block.pieces)
