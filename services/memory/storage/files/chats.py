"""The logs of a folder's chats: opened when they are needed, kept in memory while they are in use."""

from __future__ import annotations

import asyncio
import uuid
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from headrace.errors import InvalidRequest
from services.memory.log.chat import Chat, Span, check_chat, not_found
from services.memory.log.recovery import chat_of
from services.memory.storage import log_copy
from services.memory.storage.files.disk import Disk, disk_errors
from services.memory.storage.files.index_recovery import loaded
from services.memory.storage.index_rows import Change, whole
from services.memory.storage.lru import HOT_BYTES_MAX, Hot

if TYPE_CHECKING:
    from collections.abc import Collection

    from services.memory.log.lines import Known
    from services.memory.storage.files.blobs import BlobFolder
    from services.memory.storage.files.commits import Commits
    from services.memory.storage.files.index import Index
    from services.memory.storage.leases import Lease


class FileChats:
    """The logs of all chats. Touched on the event loop only; the disk is reached in threads."""

    def __init__(
        self, disk: Disk, blobs: BlobFolder, index: Index, commits: Commits, cache_bytes_max: int = HOT_BYTES_MAX
    ) -> None:
        self._disk = disk
        self._blobs = blobs
        self._index = index
        self._commits = commits
        self._open: WeakValueDictionary[str, Chat] = WeakValueDictionary()
        """Every chat that anybody holds: there are never two objects of one chat."""
        self._cache: Hot[Chat] = Hot(cache_bytes_max)
        """The chats that were used last, whether anybody holds them or not."""
        self._loading = asyncio.Lock()
        """One log is read at a time: the disk is one, and no chat is read twice."""

    async def load(self, chat_id: str) -> Chat:
        chat = await self._opened(chat_id)
        if not chat.log and not chat.facts.is_damaged:
            raise not_found(chat_id)
        self._keep(chat)
        return chat

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        chat = await self._opened(chat_id)
        run_id = lines[0].run_id
        if run_id and run_id not in chat.facts.runs:
            check_chat(run_id, chat_id, await self._index.find_chat_of_run(run_id))
        answer = await self._commits.append(chat, lines, size_bytes, lease, beside)
        self._keep(chat)
        return chat, answer

    async def fork(self, chat_id: str, n: int) -> str:
        chat = await self.load(chat_id)
        log_copy.check(chat, n)
        target = str(uuid.uuid4())
        log, run_ids = await self.export(chat), list(chat.facts.runs)
        self._index.put(await asyncio.to_thread(self._copy, chat_id, target, log_copy.Cut(log, n, run_ids)))
        return target

    async def import_log(self, chat_id: str, log: bytes) -> None:
        self._index.put(await asyncio.to_thread(self._write_new, chat_id, log))

    async def delete(self, chat_id: str) -> None:
        await self._commits.delete(await self.load(chat_id))
        self._cache.let_go(chat_id)
        self._open.pop(chat_id, None)
        with disk_errors(chat_id):
            await asyncio.to_thread(self._blobs.delete, chat_id)

    async def export(self, chat: Chat) -> bytes:
        """The chat's log, as far as it is acknowledged."""
        size_bytes = chat.size_bytes
        with disk_errors(chat.chat_id):
            return (await asyncio.to_thread(self._disk.read, chat.chat_id))[:size_bytes]

    async def _opened(self, chat_id: str) -> Chat:
        """The one object of a chat, new where it has no log."""
        chat = self._open.get(chat_id)
        if chat is None and self._is_new(chat_id):
            chat = self._open[chat_id] = Chat.empty(chat_id)
        if chat is None:
            async with self._loading:
                chat = self._open.get(chat_id) or await asyncio.to_thread(loaded, self._disk, chat_id)
                self._open[chat_id] = chat
        return chat

    def _is_new(self, chat_id: str) -> bool:
        with disk_errors(chat_id):
            return not self._disk.has(chat_id)

    def _copy(self, source: str, target: str, cut: log_copy.Cut) -> Change:
        with disk_errors(target):
            self._blobs.copy(source, target)
        return self._write_new(target, cut.copy(source, target))

    def _write_new(self, chat_id: str, log: bytes) -> Change:
        with disk_errors(chat_id):
            if chat_id in self._disk.logs():
                raise InvalidRequest.of("chatId", f"chat {chat_id} exists already")
            mtime_ns = self._disk.append(chat_id, 0, log)
        return whole(chat_of(chat_id, log), mtime_ns)

    def _keep(self, chat: Chat) -> None:
        """Keep the chat in memory as one of the last used."""
        if not chat.is_deleted:
            self._cache.keep(chat.chat_id, chat, chat.size_bytes)
