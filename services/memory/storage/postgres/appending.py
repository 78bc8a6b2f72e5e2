"""Commits appends in one statement; if another service has written, the chat is locked and read first."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog

from headrace.errors import HeadraceError, Overloaded
from services.memory.encryption.keyring import NO_KEYS
from services.memory.log.chat_watch import has_news
from services.memory.storage.engine import APPEND_COST_BYTES, WAITING_BYTES_MAX
from services.memory.storage.postgres.statements import DELETE_TEXTS, Append, StagedAppends, store_lines
from services.runtime.auth.identity import get_identity

if TYPE_CHECKING:
    from collections.abc import Collection

    from services.memory.encryption.keyring import Keyring
    from services.memory.log.chat import Chat, Span
    from services.memory.log.lines import Known
    from services.memory.storage.leases import Lease
    from services.memory.storage.postgres.cached_chat import CachedChat, ChatCache
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection
    from services.memory.storage.postgres.notifications import Notifications
    from services.memory.storage.postgres.statements import Answers
    from services.memory.storage.records.deliveries import Webhooks


_GENERATIONS = "SELECT run_id, lease_generation FROM runs WHERE chat = $1 AND run_id = ANY($2)"


async def commit_appends(
    cached: CachedChat, appends: list[Append], keys: Keyring, connection: Connection
) -> tuple[Answers, bool]:
    """Commit the appends that the chat accepts, each completely or not at all; also return whether webhooks have new
    deliveries.

    The caller holds the lock of `cached`, and the tenant's key is loaded. It is safe to repeat: lines with a known uuid
    are not stored again.
    """
    if cached.row and cached.is_from_server(connection):
        staged = StagedAppends.stage(cached.chat, appends, {}, keys)
        try:
            is_stored = staged.is_plain and await _store_staged(cached.row, cached.version, staged, connection)
        except BaseException:
            staged.roll_back()
            raise
        if is_stored:
            cached.commit_lines(staged.lines, staged.data, staged.link)
            return staged.answers, staged.has_deliveries
        staged.roll_back()
    return await _commit_locked(cached, appends, keys, connection)


async def _commit_locked(
    cached: CachedChat, appends: list[Append], keys: Keyring, connection: Connection
) -> tuple[Answers, bool]:
    staged: StagedAppends | None = None
    try:
        async with connection.transaction():
            generations: dict[str, int] = {}
            if not await cached.make_row(connection):
                await cached.lock_row(connection, keys)
                run_ids = list({append.lines[0].run_id for append in appends})
                generations = dict(await connection.fetch(_GENERATIONS, cached.row, run_ids))
            staged = StagedAppends.stage(cached.chat, appends, generations, keys)
            if staged.lines:
                is_stored = await _store_staged(cached.row, cached.version, staged, connection)
                assert is_stored, "nobody else writes to a chat that is locked"
            elif not cached.version:
                await cached.delete_row(connection)
    except BaseException:
        if staged is not None:
            staged.roll_back()
        raise
    if staged.lines:
        cached.commit_lines(staged.lines, staged.data, staged.link)
    return staged.answers, staged.has_deliveries


async def _store_staged(row: int, version: int, staged: StagedAppends, connection: Connection) -> bool:
    change = staged.make_change()
    if change.is_whole:
        await connection.execute(DELETE_TEXTS, row, change.chat.tenant)
        await connection.execute("DELETE FROM spend WHERE chat = $1", row)
    numbered = [(line.n, data) for line, data in zip(staged.lines, staged.data, strict=True)]
    deliveries = await store_lines(connection, (row, version), numbered, change, staged.list_writers(), staged.leases)
    staged.has_deliveries = bool(deliveries)
    return deliveries is not None


log = structlog.get_logger()


class AppendQueue:
    """All appends of this process; `run_commits` owns the tasks that write."""

    def __init__(
        self,
        database: Database,
        cache: ChatCache,
        peers: Notifications,
        webhooks: Webhooks,
        keys: Keyring = NO_KEYS,
    ) -> None:
        self._keys = keys
        self._webhooks = webhooks
        self._database = database
        self._cache = cache
        self._peers = peers
        self._waiting: dict[str, list[Append]] = {}
        self._waiting_bytes = 0
        self._writing = asyncio.TaskGroup()
        self._closed = asyncio.Event()

    async def run_commits(self) -> None:
        async with self._writing:
            await self._closed.wait()

    def close(self) -> None:
        self._closed.set()

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        """Commit `lines`. After a HeadraceError nothing was appended, but after Overloaded the outcome is unknown."""
        cost_bytes = size_bytes + APPEND_COST_BYTES
        if self._waiting_bytes and self._waiting_bytes + cost_bytes > WAITING_BYTES_MAX:
            raise Overloaded("too many appends wait for the database; try again later")
        done: asyncio.Future[tuple[Chat, Span | str]] = asyncio.get_running_loop().create_future()
        append = Append(lines, lease, beside, cost_bytes, done, get_identity())
        self._waiting_bytes += cost_bytes
        if chat_id in self._waiting:
            self._waiting[chat_id].append(append)
        else:
            self._waiting[chat_id] = [append]
            self._writing.create_task(self._write_chat(chat_id))
        return await append.done

    async def _write_chat(self, chat_id: str) -> None:
        while self._waiting[chat_id]:
            cached = self._cache.use_chat(chat_id)
            async with cached.lock:  # released after each round, because others read the chat
                appends, self._waiting[chat_id] = self._waiting[chat_id], []
                for append, answer in await self._commit_appends(cached, appends):
                    append.set_answer(cached.chat, answer)
                self._waiting_bytes -= sum(append.cost_bytes for append in appends)
        del self._waiting[chat_id]

    async def _commit_appends(self, cached: CachedChat, appends: list[Append]) -> Answers:
        try:
            answers, has_deliveries = await self._database.run(partial(commit_appends, cached, appends, self._keys))
        except HeadraceError as error:
            return [(append, error) for append in appends]
        except Exception as error:
            log.exception("append failed", chat_id=cached.chat.chat_id)
            return [(append, error) for append in appends]
        self._cache.keep_chat(cached)
        if any(has_news(append.lines) for append in appends):
            self._peers.notify_readers(cached.chat.chat_id)
        if has_deliveries:
            self._webhooks.wake()
        return answers
