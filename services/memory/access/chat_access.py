"""Access for the current user; other users' chats are reported as missing.

A chat's owner is in its first line, and Chat.admit checks appends. The store's own work (retention, export, takeover)
is not limited.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import NotFound
from services.memory.access.sharing import may_read
from services.memory.log.chat import Chat, chat_not_found
from services.runtime.auth import identity

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.memory.storage.index_rows import ChatEntry
    from services.runtime.auth.identity import Identity

RUNS_MAX = 10_000
"""Runs whose owners are cached: each live one renews its lease every few seconds."""


class ChatAccess:
    def __init__(self, engine: Engine) -> None:
        self._chats = engine.chats
        self._index = engine.index
        self._run_owners: dict[str, Identity] = {}
        """Owners of runs, safe to cache because they never change."""

    async def load_chat(self, chat_id: str) -> Chat:
        """Return the user's chat. Raises NotFound."""
        chat = await self._chats.load(chat_id)
        if chat.info.owner != identity.require_identity():
            raise chat_not_found(chat_id)
        return chat

    async def read_chat(self, chat_id: str) -> Chat:
        """Return a chat that the user may read: the user's, or one that is shared. Raises NotFound."""
        chat = await self._chats.load(chat_id)
        if not may_read(chat.info.owner, chat.info.shared_with):
            raise chat_not_found(chat_id)
        return chat

    async def load_chat_or_empty(self, chat_id: str) -> Chat:
        """Return the user's chat, or an empty one, which takes no appends if the id is another user's."""
        try:
            return await self.load_chat(chat_id)
        except NotFound:
            return Chat.empty(chat_id)

    async def find_entry(self, chat_id: str) -> ChatEntry:
        """Return the row of the user's chat. Raises NotFound."""
        entry = await self._index.find_entry(chat_id)
        if entry.owner != identity.require_identity():
            raise chat_not_found(chat_id)
        return entry

    async def find_readable(self, chat_id: str) -> ChatEntry:
        """Return the row of a chat that the user may read. Raises NotFound."""
        entry = await self._index.find_entry(chat_id)
        if not may_read(entry.owner, entry.shared_names):
            raise chat_not_found(chat_id)
        return entry

    async def may_read_blobs(self, chat_id: str) -> bool:
        """Return whether the user may read the chat, or it does not exist yet."""
        try:
            await self.find_readable(chat_id)
        except NotFound:
            return await self.may_use_id(chat_id)
        return True

    async def find_chat_of_run(self, run_id: str) -> str | None:
        chat_id = await self._index.find_chat_of_run(run_id)
        return chat_id if chat_id is not None and await self.owns_run(run_id) else None

    async def find_readable_chat_of_run(self, run_id: str) -> str | None:
        chat_id = await self._index.find_chat_of_run(run_id)
        if chat_id is None or await self.owns_run(run_id):
            return chat_id
        entry = await self._index.find_entry(chat_id)
        return chat_id if may_read(entry.owner, entry.shared_names) else None

    async def may_use_id(self, chat_id: str) -> bool:
        """Return whether the chat is the user's, or does not exist yet."""
        try:
            return (await self._index.find_entry(chat_id)).owner == identity.require_identity()
        except NotFound:
            return True

    async def owns_run(self, run_id: str) -> bool:
        owner = self._run_owners.get(run_id)
        if owner is None:
            chat_id = await self._index.find_chat_of_run(run_id)
            if chat_id is None:
                return False
            owner = (await self._index.find_entry(chat_id)).owner
            self._run_owners[run_id] = owner
            if len(self._run_owners) > RUNS_MAX:
                del self._run_owners[next(iter(self._run_owners))]
        return owner == identity.require_identity()
