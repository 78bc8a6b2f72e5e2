"""What an answer has said so far: blocks and calls, folded (events.md, History and attach)."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.facade.openai_api.events import Called, Closed, Dropped, Kind, Opened, Said, Told


@dataclass(slots=True)
class Block:
    """A stretch of text or reasoning."""

    id: str
    kind: Kind
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

    def restart(self, seq: int) -> None:
        """Forget what was said: it is said again."""
        self.seq, self.pieces, self.size_chars, self.is_closed = seq, [], 0, False

    def add(self, text: str) -> None:
        self.pieces.append(text)
        self.size_chars += len(text)

    def unsent(self, text: str) -> str:
        """The part of the piece just added that the caller has not had; it counts as sent from now on."""
        new = min(len(text), max(0, self.size_chars - self.sent_chars))
        self.sent_chars += new
        return text[len(text) - new :]


class Output:
    """The blocks and calls of one answer, in order. Bounded by what a model may say in a run."""

    def __init__(self) -> None:
        self.blocks: dict[str, Block] = {}
        self.calls: list[Called] = []
        self.lost: list[Block] = []
        """The blocks that the last `Dropped` has taken away."""

    def add(self, thing: Told) -> None:
        """Take the next thing that is told."""
        match thing:
            case Opened() if thing.block_id in self.blocks:
                self.blocks[thing.block_id].restart(thing.seq)
            case Opened():
                self.blocks[thing.block_id] = Block(thing.block_id, thing.kind, thing.seq)
            case Said() if thing.block_id in self.blocks:
                self.blocks[thing.block_id].add(thing.text)
            case Closed() if thing.block_id in self.blocks:
                self.blocks[thing.block_id].is_closed = True
            case Dropped():
                self.lost = [block for block in self.blocks.values() if block.seq > thing.from_seq]
                for block in self.lost:
                    del self.blocks[block.id]
            case Called():
                self.calls.append(thing)
            case _:
                pass

    def text(self, kind: Kind) -> str:
        """All blocks of a kind, with a blank line between them."""
        return "\n\n".join(block.text for block in self.blocks.values() if block.kind == kind and block.pieces)
