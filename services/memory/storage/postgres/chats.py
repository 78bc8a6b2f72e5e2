"""Chat logs in a database that several services write to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import KeyUnavailable, LogDamaged
from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log.chat import Chat, Span, chat_not_found, check_run_chat
from services.memory.log.recovery import read_chat
from services.memory.log.sealing import decrypt_log, encrypt_log
from services.memory.storage import log_copy
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.event_rows import NO_EVENTS
from services.memory.storage.index_rows import make_full_change
from services.memory.storage.leases import Lease, check_owned
from services.memory.storage.postgres.blobs import copy_blobs
from services.memory.storage.postgres.cached_chat import CachedChat, ChatCache
from services.memory.storage.postgres.spend import retire_chats
from services.memory.storage.postgres.statements import store_lines
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from services.memory.log.lines import Known
    from services.memory.storage.postgres.appending import AppendQueue
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection
    from services.memory.storage.postgres.index import PostgresIndex

_EXPORT = "SELECT data FROM lines JOIN chats ON chats.id = lines.chat WHERE chat_id = $1 AND n <= $2 ORDER BY n"

_LOCK = "SELECT id FROM chats WHERE chat_id = $1 FOR UPDATE"

_LOCK_ALL = "SELECT id FROM chats WHERE chat_id = ANY($1) ORDER BY id FOR UPDATE"

_IDLE = """
SELECT id, chat_id FROM chats WHERE id = ANY($1)
    AND NOT EXISTS (SELECT FROM runs WHERE runs.chat = chats.id AND NOT is_ended)
"""

_COUNT_OWNED = "SELECT count(*) FROM runs WHERE chat = $1 AND NOT is_ended AND owner <> '' AND expires_at > $2"

N_MAX = 2**63 - 1


class PostgresChats:
    def __init__(
        self,
        database: Database,
        cache: ChatCache,
        index: PostgresIndex,
        appending: AppendQueue,
        keys: Keyring = NO_KEYS,
        clock: Callable[[], int] = now_ms,
    ) -> None:
        self._keys = keys
        self._clock = clock
        self._database = database
        self._cache = cache
        self._index = index
        self._appending = appending

    async def load(self, chat_id: str) -> Chat:
        return (await self._load(chat_id)).chat

    async def load_durable(self, chat_id: str) -> Chat:
        cached = self._cache.use_chat(chat_id)

        async def flush(connection: Connection) -> None:
            # A transaction that has locked a row waits for the standby as one that has written does.
            async with connection.transaction():
                await cached.lock_row(connection, self._keys)

        async with cached.lock:
            await self._database.run(flush)
        if not cached.row:
            raise chat_not_found(chat_id)
        return cached.chat

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        run_id, tenant = lines[0].run_id, Identity.from_stored(lines[0].tenant, "").tenant
        if not self._keys.is_ready(tenant):
            await self._keys.prepare(tenant)
        if run_id and run_id not in self._cache.use_chat(chat_id).chat.info.runs:
            check_run_chat(run_id, chat_id, await self._index.find_chat_of_run(run_id))
        return await self._appending.append(chat_id, lines, size_bytes, lease, beside)

    async def export(self, chat: Chat, *, as_stored: bool = False) -> bytes:
        # Of a damaged chat the lines that cannot be read too: it is exported to be looked at.
        values = (chat.chat_id, N_MAX if chat.info.is_damaged else len(chat.log))
        rows = await self._database.run(lambda connection: connection.fetch(_EXPORT, *values))
        log = b"".join(row[0] + b"\n" for row in rows)
        if as_stored or not self._keys.is_on:
            return log
        return await asyncio.to_thread(decrypt_log, chat.chat_id, log, self._keys)

    async def fork(self, chat_id: str, n: int, owner: Identity, target: str) -> None:
        cached = await self._load(chat_id)
        chat, row = cached.chat, cached.row
        log_copy.check_copy(chat, n)
        log = await self.export(chat)
        cut = log_copy.LogCut(log, n, list(chat.info.runs), owner.user, chat.info.owner.tenant)
        log = await asyncio.to_thread(cut.copy_log, chat_id, target)

        async def make(connection: Connection) -> None:
            async with connection.transaction():
                if not await make_chat(target, log, self._keys, connection):
                    raise log_copy.make_exists_error(target)
                await copy_blobs(chat_id, target, cut.tenant, self._keys, connection)
                # An erasure recreates or deletes the row, and looks for copies afterwards.
                if await connection.fetchval(_LOCK, chat_id) != row:
                    raise log_copy.make_changed_error(chat_id)

        await self._keys.prepare(cut.tenant)
        await self._database.run(make)

    async def import_log(self, chat_id: str, log: bytes) -> None:
        async def make(connection: Connection) -> bool:
            async with connection.transaction():
                return await make_chat(chat_id, log, self._keys, connection)

        if self._keys.encrypts:
            await self._keys.prepare((await asyncio.to_thread(read_chat, chat_id, log)).info.owner.tenant)
        if not await self._database.run(make):
            raise log_copy.make_exists_error(chat_id)

    async def delete(self, chat_id: str) -> None:
        cached = self._cache.use_chat(chat_id)

        async def delete(connection: Connection) -> None:
            async with connection.transaction():
                await cached.lock_row(connection, self._keys)
                cached.chat.check_delete()
                await _delete_rows([cached.row], [chat_id], connection)

        async with cached.lock:
            try:
                await self._database.run(delete)
            except (KeyUnavailable, LogDamaged):
                await self._database.run(partial(_delete_unread, chat_id, self._clock()))
        self._cache.drop_chat(chat_id)

    async def delete_together(self, chat_ids: Collection[str]) -> Collection[str]:
        async def delete(connection: Connection) -> list[str]:
            async with connection.transaction():
                locked = await connection.fetch(_LOCK_ALL, [*chat_ids])
                # A separate statement, which sees the runs that began while the first one waited.
                idle = await connection.fetch(_IDLE, [row[0] for row in locked])
                rows, deleted = [row[0] for row in idle], [row[1] for row in idle]
                await _delete_rows(rows, deleted, connection)
            return deleted

        deleted = await self._database.run(delete)
        for chat_id in deleted:
            self._cache.drop_chat(chat_id)
        return deleted

    async def _load(self, chat_id: str) -> CachedChat:
        cached = self._cache.use_chat(chat_id)
        await self._read_new_lines(cached)
        if not cached.row:
            raise chat_not_found(chat_id)
        return cached

    async def _read_new_lines(self, cached: CachedChat) -> None:
        async with cached.lock:
            await self._database.run(lambda connection: cached.read_new_lines(connection, self._keys))
        self._cache.keep_chat(cached)


async def _delete_unread(chat_id: str, now: int, connection: Connection) -> None:
    async with connection.transaction():
        row = await connection.fetchval(_LOCK, chat_id)
        if row is None:
            raise chat_not_found(chat_id)
        check_owned(chat_id, await connection.fetchval(_COUNT_OWNED, row, now))
        await _delete_rows([row], [chat_id], connection)


async def _delete_rows(rows: list[int], chat_ids: list[str], connection: Connection) -> None:
    await retire_chats(rows, connection)
    await connection.execute("DELETE FROM chats WHERE id = ANY($1)", rows)
    await connection.execute("DELETE FROM blobs WHERE chat_id = ANY($1)", chat_ids)


async def make_chat(chat_id: str, log: bytes, keys: Keyring, connection: Connection) -> bool:
    """Return False if the chat exists; its tenant's key must be loaded."""
    cached = CachedChat.empty(chat_id)
    if not await cached.make_row(connection):
        return False
    chat = await asyncio.to_thread(read_chat, chat_id, log)
    if keys.encrypts:
        log = await asyncio.to_thread(encrypt_log, chat_id, log, keys, chat.info.owner.tenant)
    numbered = list(enumerate(log.split(b"\n")[:-1], 1))
    # Higher than any generation that was given where the chat comes from.
    leases = {run.run_id: Lease("", now_ms(), 0) for run in chat.info.list_unfinished()}
    # The events in a copy happened elsewhere, and are not reported again.
    change = RowCipher(keys).encrypt_change(replace(make_full_change(chat, 0), events=NO_EVENTS))
    stored = await store_lines(connection, (cached.row, cached.version), numbered, change, leases=leases)
    return stored is not None
