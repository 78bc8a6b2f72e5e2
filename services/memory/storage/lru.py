"""A cache of the most recently used chats, bounded in bytes."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

T = TypeVar("T")

CACHE_BYTES_MAX = 32 * 1024 * 1024
"""Maximum size of the logs with cached lines; parsed, they take about three times as much."""

COST_BYTES = 16 * 1024
"""Bytes counted for a chat in addition to its log, so that many small ones are bounded too."""


class LruCache(Generic[T]):
    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._kept: OrderedDict[str, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def find_chat(self, chat_id: str) -> T | None:
        kept = self._kept.get(chat_id)
        return kept[0] if kept else None

    def put_chat(self, chat_id: str, chat: T, size_bytes: int) -> None:
        """Add a chat with this log size as the most recently used; the least recently used may be dropped."""
        self.drop_chat(chat_id)
        cost_bytes = COST_BYTES + size_bytes
        self._kept[chat_id] = (chat, cost_bytes)
        self._bytes += cost_bytes
        while self._bytes > self._bytes_max and len(self._kept) > 1:
            self.drop_chat(next(iter(self._kept)))

    def drop_chat(self, chat_id: str) -> None:
        _, cost_bytes = self._kept.pop(chat_id, (None, 0))
        self._bytes -= cost_bytes
