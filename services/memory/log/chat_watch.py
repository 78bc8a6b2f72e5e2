"""Wakes the readers of chats in which a run begins, or a compaction between runs is stored.

A store reports these after their commit. Reports from another service may be lost, so readers also poll.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from services.memory.log.lines import CompactBoundary, Query

if TYPE_CHECKING:
    from services.memory.log.lines import Line

LOOK_S = 30.0
"""Maximum time before a missed change is seen."""


class ChatReader:
    def __init__(self) -> None:
        self.is_closed = False
        self._change = asyncio.Event()

    async def wait(self) -> None:
        """Return after a change, or when it is time to poll."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await self._change.wait()
        self._change.clear()

    def wake(self) -> None:
        self._change.set()


class ChatWatch:
    """All readers of a store's chats, used on the event loop only."""

    def __init__(self) -> None:
        self._readers: dict[str, dict[ChatReader, None]] = {}
        self._is_closed = False

    @contextmanager
    def reading(self, chat_id: str) -> Generator[ChatReader]:
        reader = ChatReader()
        reader.is_closed = self._is_closed
        self._readers.setdefault(chat_id, {})[reader] = None
        try:
            yield reader
        finally:
            del self._readers[chat_id][reader]
            if not self._readers[chat_id]:
                del self._readers[chat_id]

    def report(self, chat_id: str) -> None:
        for reader in self._readers.get(chat_id, ()):
            reader.wake()

    def close(self) -> None:
        """End all readers, because the service stops."""
        self._is_closed = True
        for readers in self._readers.values():
            for reader in readers:
                reader.is_closed = True
                reader.wake()


def has_news(lines: Iterable[Line]) -> bool:
    """Return whether readers must be notified of these lines."""
    return any(isinstance(line, Query | CompactBoundary) for line in lines)
