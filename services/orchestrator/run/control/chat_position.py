"""A run's place in its chat, and the earlier messages that it hides from its model."""

from __future__ import annotations

from collections.abc import Iterator


class ChatPosition:
    __slots__ = ("_cancelled", "checkpoint_id", "is_first", "owner")

    def __init__(self, *, is_first: bool, owner: str = "") -> None:
        self.is_first = is_first
        self.owner = owner
        """The user whose chat it is; empty while its query is not stored."""
        self.checkpoint_id: int | None = None
        """Checkpoint to which taking the run back reverts; None while its query is not stored."""
        self._cancelled: list[ChatPosition] = []

    def open_chat(self) -> None:
        self.is_first = True

    def store(self, checkpoint_id: int, owner: str) -> None:
        self.checkpoint_id, self.owner = checkpoint_id, owner

    def take_back(self, cancelled: list[ChatPosition]) -> None:
        self._cancelled = cancelled

    def revert(self) -> int | None:
        checkpoints = [position.checkpoint_id for position in self.list_hidden() if position.checkpoint_id is not None]
        if not checkpoints:
            return None
        # At the checkpoint of a run that has taken others back those were still in the view: go back as far as it did.
        self.checkpoint_id = min(checkpoints)
        self._cancelled = []
        return self.checkpoint_id

    def list_hidden(self) -> Iterator[ChatPosition]:
        """Iterate the runs taken back, with those that they should have taken back."""
        for position in self._cancelled:
            yield position
            yield from position.list_hidden()
