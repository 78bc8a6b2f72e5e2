from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from headrace.errors import InvalidRequest
from services.memory.log.chat import Chat, Span, chat_not_found, check_run_chat
from services.memory.log.recovery import read_chat
from services.memory.storage import log_copy
from services.memory.storage.event_rows import NO_EVENTS
from services.memory.storage.files.disk import Disk, disk_errors
from services.memory.storage.files.index_recovery import load_chat
from services.memory.storage.index_rows import IndexChange, make_full_change
from services.memory.storage.lru import CACHE_BYTES_MAX, LruCache
from services.runtime.randomness import new_uuid

if TYPE_CHECKING:
    from collections.abc import Collection

    from services.memory.log.lines import Known
    from services.memory.storage.files.blobs import BlobFolder
    from services.memory.storage.files.commits import Commits
    from services.memory.storage.files.disk_room import DiskRoom
    from services.memory.storage.files.index import Index
    from services.memory.storage.leases import Lease
    from services.runtime.auth.identity import Identity


class FileChats:
    """The logs of all chats, used on the event loop only; the disk is reached in threads."""

    def __init__(
        self,
        disk: Disk,
        room: DiskRoom,
        blobs: BlobFolder,
        index: Index,
        commits: Commits,
        cache_bytes_max: int = CACHE_BYTES_MAX,
    ) -> None:
        self._disk = disk
        self._room = room
        self._blobs = blobs
        self._index = index
        self._commits = commits
        self._open: WeakValueDictionary[str, Chat] = WeakValueDictionary()
        """Every chat in use: there are never two objects of one chat."""
        self._cache: LruCache[Chat] = LruCache(cache_bytes_max)
        self._loading = asyncio.Lock()

    async def load(self, chat_id: str) -> Chat:
        chat = await self._open_chat(chat_id)
        if not chat.log and not chat.info.is_damaged:
            raise chat_not_found(chat_id)
        self._cache_chat(chat)
        return chat

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        chat = await self._open_chat(chat_id)
        run_id = lines[0].run_id
        if run_id and run_id not in chat.info.runs:
            check_run_chat(run_id, chat_id, await self._index.find_known_chat_of_run(run_id))
        answer = await self._commits.append_lines(chat, lines, size_bytes, lease, beside)
        self._cache_chat(chat)
        return chat, answer

    async def fork(self, chat_id: str, n: int, owner: Identity) -> str:
        chat = await self.load(chat_id)
        log_copy.check_copy(chat, n)
        target = new_uuid()
        log, run_ids = await self.export(chat), list(chat.info.runs)
        self._index.put_change(
            await asyncio.to_thread(self._copy_chat, chat_id, target, log_copy.LogCut(log, n, run_ids, owner.user))
        )
        return target

    async def import_log(self, chat_id: str, log: bytes) -> None:
        self._index.put_change(await asyncio.to_thread(self._write_new, chat_id, log))

    async def delete(self, chat_id: str) -> None:
        await self._commits.delete_chat(await self.load(chat_id))
        self._cache.drop_chat(chat_id)
        self._open.pop(chat_id, None)
        with disk_errors(chat_id):
            await asyncio.to_thread(self._blobs.delete_blobs, chat_id)

    async def export(self, chat: Chat) -> bytes:
        size_bytes = chat.size_bytes
        with disk_errors(chat.chat_id):
            return (await asyncio.to_thread(self._disk.read_log, chat.chat_id))[:size_bytes]

    async def _open_chat(self, chat_id: str) -> Chat:
        chat = self._open.get(chat_id)
        if chat is None:
            await self._index.backlog.take_in(chat_id)  # what is appended later is counted once
            with disk_errors(chat_id):
                if not self._disk.has_log(chat_id):
                    chat = self._open[chat_id] = Chat.empty(chat_id)
        if chat is None:
            async with self._loading:
                chat = self._open.get(chat_id) or await asyncio.to_thread(load_chat, self._disk, chat_id)
                self._open[chat_id] = chat
        return chat

    def _copy_chat(self, source: str, target: str, cut: log_copy.LogCut) -> IndexChange:
        with self._room.writing(target):
            self._blobs.copy_blobs(source, target)
        return self._write_new(target, cut.copy_log(source, target))

    def _write_new(self, chat_id: str, log: bytes) -> IndexChange:
        with self._room.writing(chat_id):
            try:
                mtime_ns = self._disk.create_log(chat_id, log)
            except FileExistsError as error:
                raise InvalidRequest.of("chatId", f"chat {chat_id} exists already") from error
        # What a copy says has happened elsewhere: nobody is told of it again.
        return replace(make_full_change(read_chat(chat_id, log), mtime_ns), events=NO_EVENTS)

    def _cache_chat(self, chat: Chat) -> None:
        if not chat.is_deleted:
            self._cache.put_chat(chat.chat_id, chat, chat.size_bytes)
