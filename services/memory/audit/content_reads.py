"""Who has read which chat of another user, or with a key that another has made, told to the audit log once an hour."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from services.runtime.clock import monotonic_s

if TYPE_CHECKING:
    from services.memory.storage.audit import AuditTrail
    from services.runtime.auth.identity import Identity

TOLD_S = 3600.0
"""Pages of a chat, and what a client reads again and again, are one line for so long."""

READS_MAX = 10_000
"""Reads that are remembered; one that is forgotten early is told once more."""


class ContentReads:
    def __init__(self, audit: AuditTrail) -> None:
        self._audit = audit
        self._told_at: OrderedDict[tuple[Identity, str, str], float] = OrderedDict()
        """By reader, credential and chat, the oldest first."""

    async def record(self, reader: Identity, owner: Identity, chat_id: str) -> None:
        """Record that `reader` is shown a chat of `owner`, before it is shown."""
        if reader == owner and not reader.makers:
            return
        key, now = (reader, reader.credential, chat_id), monotonic_s()
        if now - self._told_at.get(key, -TOLD_S) < TOLD_S:
            return
        makers = " ".join(sorted(reader.makers))
        await self._audit.record("content.read", reader, chatId=chat_id, of=owner.user, makers=makers)
        self._told_at[key] = now
        self._told_at.move_to_end(key)
        if len(self._told_at) > READS_MAX:
            self._told_at.popitem(last=False)
