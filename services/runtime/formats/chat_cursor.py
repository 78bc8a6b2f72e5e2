"""Cursors of followed chats, for AgentService.Follow."""

from __future__ import annotations

import re
from dataclasses import dataclass

CURSOR = r"[0-9]{1,18}\.[0-9]{1,18}"
"""The form of a cursor."""

_FORM = re.compile(CURSOR)


@dataclass(frozen=True, slots=True, order=True)
class ChatCursor:
    """A position in a chat, by its log and the numbers of events; it is valid across processes."""

    n: int = 0
    """Number of the first line of a run, or of the line of an event between runs."""

    seq: int = 0
    """Number of the run's last event that was sent; 0 before the first, and between runs."""

    @classmethod
    def parse(cls, text: str) -> ChatCursor | None:
        """Parse a cursor; an empty text is the beginning of the chat, an invalid one gives None."""
        if not text:
            return cls()
        if not _FORM.fullmatch(text):
            return None
        n, _, seq = text.partition(".")
        return cls(int(n), int(seq))

    @classmethod
    def read(cls, text: str) -> ChatCursor:
        """Parse a cursor of this format."""
        cursor = cls.parse(text)
        assert cursor is not None, "it was checked, or is our own"
        return cursor

    def __str__(self) -> str:
        return f"{self.n}.{self.seq}"
