from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from headrace.errors import ChatBusy, KeyUnavailable, LogDamaged
from services.memory.encryption import envelope
from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log.chat import Chat, Span, chat_not_found, check_run_chat
from services.memory.log.chat_watch import has_news
from services.memory.log.recovery import read_chat
from services.memory.log.sealing import decrypt_log, encrypt_log, is_current_log
from services.memory.storage import log_copy
from services.memory.storage.event_rows import NO_EVENTS
from services.memory.storage.files.disk import Disk, disk_errors
from services.memory.storage.files.indexing.index_recovery import load_chat
from services.memory.storage.index_rows import IndexChange, make_full_change
from services.memory.storage.leases import check_can_own, check_owned
from services.memory.storage.lru import CACHE_BYTES_MAX, LruCache
from services.runtime.auth.identity import Identity
from services.runtime.ending import complete

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from services.memory.log.chat_watch import ChatWatch
    from services.memory.log.lines import Known
    from services.memory.storage.files.blobs import BlobFolder
    from services.memory.storage.files.commits import Commits
    from services.memory.storage.files.disk_room import DiskRoom
    from services.memory.storage.files.indexing.index import Index
    from services.memory.storage.files.leases import LeaseTable
    from services.memory.storage.leases import Lease


class FileChats:
    """The logs of all chats, used on the event loop only; the disk is accessed in threads."""

    def __init__(
        self,
        disk: Disk,
        room: DiskRoom,
        blobs: BlobFolder,
        index: Index,
        commits: Commits,
        watch: ChatWatch,
        cache_bytes_max: int = CACHE_BYTES_MAX,
        keys: Keyring = NO_KEYS,
    ) -> None:
        self._disk = disk
        self._keys = keys
        self._room = room
        self._blobs = blobs
        self._index = index
        self._commits = commits
        self._watch = watch
        self._open: WeakValueDictionary[str, Chat] = WeakValueDictionary()
        """Every chat in use, so that a chat never has two objects."""
        self._cache: LruCache[Chat] = LruCache(cache_bytes_max)
        self._loading = asyncio.Lock()
        self._rewriting = asyncio.Lock()
        """Held while a log is replaced by one of another length, or deleted, or a copy is made."""

    async def load(self, chat_id: str) -> Chat:
        chat = await self._open_chat(chat_id)
        if not chat.log and not chat.info.is_damaged:
            raise chat_not_found(chat_id)
        self._cache_chat(chat)
        return chat

    async def load_durable(self, chat_id: str) -> Chat:
        await self._commits.flush()
        return await self.load(chat_id)

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        chat = await self._open_chat(chat_id)
        run_id, tenant = lines[0].run_id, Identity.from_stored(lines[0].tenant, "").tenant
        if not self._keys.is_ready(tenant):
            await self._keys.prepare(tenant)
        if run_id and run_id not in chat.info.runs:
            check_run_chat(run_id, chat_id, await self._index.find_known_chat_of_run(run_id))
        answer = await self._commits.append_lines(chat, lines, size_bytes, lease, beside)
        if has_news(lines):
            self._watch.report(chat_id)
        self._cache_chat(chat)
        return chat, answer

    async def fork(self, chat_id: str, n: int, owner: Identity, target: str) -> None:
        # Half of it would be blobs of no chat, or a log that no list has.
        await complete(self._fork(chat_id, n, owner, target))

    async def _fork(self, chat_id: str, n: int, owner: Identity, target: str) -> None:
        chat = await self.load(chat_id)
        log_copy.check_copy(chat, n)
        lines = chat.log  # others, once something was erased from them
        log, run_ids = await self.export(chat), list(chat.info.runs)
        cut = log_copy.LogCut(log, n, run_ids, owner.user, chat.info.owner.tenant)
        copy = await asyncio.to_thread(self._copy_chat, chat_id, target, cut)
        # An erasure looks for copies when it is done; a copy made earlier is in the index by then.
        async with self._rewriting:
            if chat.log is lines and not chat.is_deleted:
                self._index.put_change(await asyncio.to_thread(self._write_new, target, copy))
                return
        with disk_errors(target):
            await asyncio.to_thread(self._blobs.delete_blobs, target)
        raise log_copy.make_changed_error(chat_id)

    async def import_log(self, chat_id: str, log: bytes) -> None:
        self._index.put_change(await asyncio.to_thread(self._write_new, chat_id, log))

    async def rewrite(self, chat_id: str) -> bool:
        """Rewrite the chat's log if it is not in its current form; return whether that was necessary. Raises NotFound,
        KeyUnavailable, Overloaded."""
        chat = await self.load(chat_id)
        if await asyncio.to_thread(self._is_current, chat_id, chat.info.owner.tenant):
            return False
        async with self._rewriting:
            return await self._commits.reencrypt_chat(chat)

    async def redact(self, chat_id: str, redact: Callable[[bytes], bytes]) -> None:
        """Replace a log by the result of `redact`; raises the errors of Commits.rewrite_chat."""
        chat = await self.load(chat_id)
        with disk_errors(chat_id):
            await asyncio.to_thread(self._blobs.delete_unfinished, chat_id)
        async with self._rewriting:
            await self._commits.rewrite_chat(chat, redact)

    def _is_current(self, chat_id: str, tenant: str) -> bool:
        with disk_errors(chat_id):
            older = self._disk.read_older(chat_id)
            if older is not None and not self._keys.is_current(tenant, older):
                return False
            return is_current_log(self._disk.read_log(chat_id), self._keys, tenant)

    async def delete(self, chat_id: str) -> None:
        await complete(self._delete(chat_id))

    async def delete_together(self, chat_ids: Collection[str]) -> Collection[str]:
        return ()  # each has files of its own

    async def _delete(self, chat_id: str) -> None:
        try:
            chat = await self.load(chat_id)
        except (KeyUnavailable, LogDamaged):
            chat = None
        async with self._rewriting:
            await (self._delete_unread(chat_id) if chat is None else self._commits.delete_chat(chat))
        self._cache.drop_chat(chat_id)
        self._open.pop(chat_id, None)
        with disk_errors(chat_id):
            await asyncio.to_thread(self._blobs.delete_blobs, chat_id)

    async def export(self, chat: Chat, *, as_stored: bool = False) -> bytes:
        async with self._rewriting:
            size_bytes = chat.size_bytes
            with disk_errors(chat.chat_id):
                log = (await asyncio.to_thread(self._disk.read_log, chat.chat_id))[:size_bytes]
        if as_stored or not self._keys.is_on:
            return log
        return await asyncio.to_thread(decrypt_log, chat.chat_id, log, self._keys)

    async def _open_chat(self, chat_id: str) -> Chat:
        chat = self._open.get(chat_id)
        if chat is None:
            await self._index.backlog.take_in(chat_id)  # later appends are counted only once
            with disk_errors(chat_id):
                if not self._disk.has_log(chat_id):
                    chat = self._open[chat_id] = Chat.empty(chat_id)
        if chat is None:
            await self._open_key(chat_id)
            async with self._loading:
                chat = self._open.get(chat_id) or await asyncio.to_thread(load_chat, self._disk, chat_id, self._keys)
                self._open[chat_id] = chat
        return chat

    async def _delete_unread(self, chat_id: str) -> None:
        async with self._loading:  # no task has it open, or opens it until this is done
            if chat_id in self._open:
                raise ChatBusy(f"chat {chat_id} has its key again; try again", chatId=chat_id)
            row = await self._index.find_row(chat_id)
            unfinished = await self._index.list_unfinished(chat_id)
            ownerless = await self._index.list_unfinished(chat_id, without_owner=True)
            check_owned(chat_id, len(unfinished) - len(ownerless))
            spend = await self._index.query_file(lambda database: database.spend.list_of_chat(chat_id))
            await self._commits.delete_unread(chat_id, row.created_at, spend)

    async def delete_unindexed(self, chat_id: str) -> None:
        """Delete the log of a chat that the index lacks because its key is lost."""
        async with self._loading:
            await self._commits.delete_unread(chat_id, 0, ())
        with disk_errors(chat_id):
            await asyncio.to_thread(self._blobs.delete_blobs, chat_id)

    async def _open_key(self, chat_id: str) -> None:
        """Load the log's key before other tasks wait for the log."""
        if not self._keys.is_on:
            return
        with disk_errors(chat_id):
            head = await asyncio.to_thread(self._disk.read_head, chat_id)
        if (key_id := envelope.find_key_id(head)) is not None:
            await self._keys.open_key(key_id)

    def _copy_chat(self, source: str, target: str, cut: log_copy.LogCut) -> bytes:
        with self._room.writing(target):
            self._blobs.copy_blobs(source, target, cut.tenant)
        return cut.copy_log(source, target)

    def _write_new(self, chat_id: str, log: bytes) -> IndexChange:
        chat = read_chat(chat_id, log)
        tenant = chat.info.owner.tenant
        self._keys.prepare_now(tenant)
        if self._keys.encrypts:
            log = encrypt_log(chat_id, log, self._keys, tenant)
            chat = read_chat(chat_id, log, self._keys)  # as stored in the file
        with self._room.writing(chat_id):
            try:
                mtime_ns = self._disk.create_log(chat_id, log)
            except FileExistsError as error:
                raise log_copy.make_exists_error(chat_id) from error
        # The events in a copy happened elsewhere, and are not reported again.
        return replace(make_full_change(chat, mtime_ns), events=NO_EVENTS)

    def _cache_chat(self, chat: Chat) -> None:
        if not chat.is_deleted:
            self._cache.put_chat(chat.chat_id, chat, chat.size_bytes)


class FileLeases:
    def __init__(self, chats: FileChats, commits: Commits, table: LeaseTable) -> None:
        self._chats = chats
        self._commits = commits
        self._table = table
        self.create_first = table.create_first
        self.renew = table.renew
        self.release = table.release

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        run = check_can_own((await self._chats.load(chat_id)).info.runs.get(run_id), chat_id, run_id)
        lease = await self._table.acquire(run_id, run.generation, owner, ttl_ms)
        # The former owner's earlier requests are committed first; later ones are refused.
        await self._commits.flush()
        return lease
