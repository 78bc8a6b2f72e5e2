"""The chats of an engine as one user has them: those of others do not exist.

Whose a chat is stands in its first line. Every RPC goes through here; what an engine does by itself (retention, export,
taking runs over) does not. An append is held against the chat's owner where it is held against all else (Chat.check).
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from headrace.errors import NotFound
from services.memory.log.chat import Chat, not_found
from services.memory.storage.leases import lost
from services.memory.storage.paging import Page
from services.runtime.auth import identity

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from services.memory.log.blobs import Blob
    from services.memory.log.chat import Span
    from services.memory.log.lines import Known
    from services.memory.storage.engine import Engine
    from services.memory.storage.index_rows import ChatEntry, UnfinishedEntry
    from services.memory.storage.leases import Lease
    from services.memory.storage.search import Hit, Question
    from services.runtime.auth.identity import Identity

RUNS_MAX = 10_000
"""Runs whose owners are kept in mind: each live one renews its lease every few seconds."""


class Owned:
    """What the user of the current call may do; see Engine for each."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.find_blob = engine.find_blob
        """For a chat that was found to be the user's."""
        self.first_lease = engine.first_lease
        self.log = engine.log
        self._runs: dict[str, Identity] = {}
        """Owners of runs: no run ever has another one."""

    async def chat(self, chat_id: str) -> Chat:
        chat = await self._engine.chat(chat_id)
        if chat.facts.owner != identity.require_identity():
            raise not_found(chat_id)
        return chat

    async def chat_to_be(self, chat_id: str) -> Chat:
        """The chat, or an empty one where the caller has none: nothing can be appended to that if it is another's."""
        try:
            return await self.chat(chat_id)
        except NotFound:
            return Chat.empty(chat_id)

    async def entry(self, chat_id: str) -> ChatEntry:
        entry = await self._engine.entry(chat_id)
        if entry.owner != identity.require_identity():
            raise not_found(chat_id)
        return entry

    async def page(self, size: int, token: str) -> tuple[list[ChatEntry], str]:
        return await self._engine.page(identity.require_identity(), Page.of(size, token))

    async def chat_of(self, run_id: str) -> str | None:
        chat_id = await self._engine.chat_of(run_id)
        return chat_id if chat_id is not None and await self._owner(run_id) == identity.require_identity() else None

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        return await self._engine.append(chat_id, lines, size_bytes, lease, beside)

    async def unfinished(self, chat_id: str | None = None, *, without_owner: bool = False) -> list[UnfinishedEntry]:
        """Those of all users: for whoever takes runs over."""
        return await self._engine.unfinished(chat_id, without_owner=without_owner)

    async def fork(self, chat_id: str, n: int) -> str:
        await self.entry(chat_id)
        return await self._engine.fork(chat_id, n)

    async def delete(self, chat_id: str) -> None:
        await self.entry(chat_id)
        await self._engine.delete(chat_id)

    async def search(self, question: Question) -> list[Hit]:
        return await self._engine.search(identity.require_identity(), question)

    async def remember(self, text: str, request_id: str) -> str:
        return await self._engine.remember(identity.require_identity(), text, request_id)

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        await self.entry(chat_id)
        return await self._engine.acquire(chat_id, run_id, owner, ttl_ms)

    async def renew(self, run_id: str, generation: int, ttl_ms: int) -> Lease:
        if await self._owner(run_id) != identity.require_identity():
            raise lost(run_id, generation)
        return await self._engine.renew(run_id, generation, ttl_ms)

    async def release(self, run_id: str, generation: int) -> None:
        if await self._owner(run_id) == identity.require_identity():
            await self._engine.release(run_id, generation)

    async def put_blobs(self, chat_id: str, blobs: Iterable[Blob]) -> None:
        blobs = list(blobs)
        if blobs:
            await self._check_new_or_own(chat_id)
            await self._engine.put_blobs(chat_id, blobs)

    async def blob(self, chat_id: str, blob_id: str) -> Blob | None:
        try:
            await self._check_new_or_own(chat_id)
        except NotFound:
            return None
        return await asyncio.to_thread(self._engine.find_blob, chat_id, blob_id)

    async def _check_new_or_own(self, chat_id: str) -> None:
        """Raise NotFound for another's chat; one that is not there may be about to be."""
        try:
            owner = (await self._engine.entry(chat_id)).owner
        except NotFound:
            return
        if owner != identity.require_identity():
            raise not_found(chat_id)

    async def _owner(self, run_id: str) -> Identity | None:
        """Whose run it is; None: there is no such run."""
        if (owner := self._runs.get(run_id)) is not None:
            return owner
        chat_id = await self._engine.chat_of(run_id)
        if chat_id is None:
            return None
        owner = (await self._engine.entry(chat_id)).owner
        self._runs[run_id] = owner
        if len(self._runs) > RUNS_MAX:
            del self._runs[next(iter(self._runs))]
        return owner
