"""What an answer has said so far: blocks and calls, folded (events.md, History and attach)."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.facade.openai_face.told import Called, Closed, Dropped, Kind, Opened, Said, Told


@dataclass(slots=True)
class Block:
    """A stretch of text or reasoning."""

    id: str
    kind: Kind
    pieces: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    """With their seqs."""

    size_chars: int = 0
    sent_chars: int = 0
    """How much of it the caller has been sent; more than its size when it is being said again."""

    is_closed: bool = False

    @property
    def text(self) -> str:
        return "".join(text for _, text in self.pieces)

    def restart(self) -> None:
        """Forget what was said: it is said again."""
        self.pieces, self.size_chars, self.is_closed = [], 0, False

    def add(self, seq: int, text: str) -> None:
        self.pieces.append((seq, text))
        self.size_chars += len(text)

    def drop_after(self, seq: int) -> None:
        """Forget what was said after `seq`; what comes then is new, even to a caller who had more."""
        if self.pieces and self.pieces[-1][0] > seq:
            self.pieces = [piece for piece in self.pieces if piece[0] <= seq]
            self.size_chars = self.sent_chars = sum(len(text) for _, text in self.pieces)

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

    def add(self, thing: Told) -> None:
        """Take the next thing that is told."""
        match thing:
            case Opened() if thing.block_id in self.blocks:
                self.blocks[thing.block_id].restart()
            case Opened():
                self.blocks[thing.block_id] = Block(thing.block_id, thing.kind)
            case Said() if thing.block_id in self.blocks:
                self.blocks[thing.block_id].add(thing.seq, thing.text)
            case Closed() if thing.block_id in self.blocks:
                self.blocks[thing.block_id].is_closed = True
            case Dropped():
                for block in self.blocks.values():
                    block.drop_after(thing.from_seq)
            case Called():
                self.calls.append(thing)
            case _:
                pass

    def text(self, kind: Kind) -> str:
        """All blocks of a kind, with a blank line between them."""
        return "\n\n".join(block.text for block in self.blocks.values() if block.kind == kind and block.pieces)
