"""Cursors of followed chats, as AgentService.Follow gives and takes them."""

from __future__ import annotations

import re
from dataclasses import dataclass

CURSOR = r"[0-9]{1,18}\.[0-9]{1,18}"
"""The form of a cursor."""

_FORM = re.compile(CURSOR)


@dataclass(frozen=True, slots=True, order=True)
class ChatCursor:
    """A place in a chat, which its log and the numbers of events name: it outlives every process."""

    n: int = 0
    """Number of the first line of a run, or of the line of an event between runs."""

    seq: int = 0
    """Number of the run's last event that was sent; 0 before the first, and between runs."""

    @classmethod
    def parse(cls, text: str) -> ChatCursor | None:
        """Return the cursor that a text is, the chat's beginning for an empty one; None: it is none."""
        if not text:
            return cls()
        if not _FORM.fullmatch(text):
            return None
        n, _, seq = text.partition(".")
        return cls(int(n), int(seq))

    @classmethod
    def read(cls, text: str) -> ChatCursor:
        """Return the cursor that a text of this form is."""
        cursor = cls.parse(text)
        assert cursor is not None, "it was checked, or is our own"
        return cursor

    def __str__(self) -> str:
        return f"{self.n}.{self.seq}"
