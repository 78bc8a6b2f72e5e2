"""A run's position in its chat: whether it opens it, and which messages before it its model does not see."""

from __future__ import annotations

from collections.abc import Iterator


class ChatPosition:
    """The position of one run; a later run of the chat that takes this one back keeps it."""

    __slots__ = ("_cancelled", "checkpoint_id", "is_first")

    def __init__(self, *, is_first: bool) -> None:
        self.is_first = is_first
        """Whether the run's query is the chat's first."""
        self.checkpoint_id: int | None = None
        """The checkpoint that taking the run back reverts to: before its query, or the one that it has itself reverted
        to; None: its query is not stored."""
        self._cancelled: list[ChatPosition] = []
        """Cancelled runs whose messages this one's model is not to see."""

    def open_chat(self) -> None:
        self.is_first = True

    def store(self, checkpoint_id: int) -> None:
        """The query is in the log, behind this checkpoint."""
        self.checkpoint_id = checkpoint_id

    def take_back(self, cancelled: list[ChatPosition]) -> None:
        """Hide these runs from the run's model when it is its turn."""
        self._cancelled = cancelled

    def revert(self) -> int | None:
        """The checkpoint to revert to now; None: there is nothing to take back."""
        checkpoints = [position.checkpoint_id for position in self.list_hidden() if position.checkpoint_id is not None]
        if not checkpoints:
            return None
        # At the checkpoint of a run that has taken others back those were still in the view: go back as far as it did.
        self.checkpoint_id = min(checkpoints)
        self._cancelled = []
        return self.checkpoint_id

    def list_hidden(self) -> Iterator[ChatPosition]:
        """The runs that this one takes back, and those that they should have taken back and did not."""
        for position in self._cancelled:
            yield position
            yield from position.list_hidden()
