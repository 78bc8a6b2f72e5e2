"""Group commit for each chat: appends that wait while others are written go to the database together.

What waits is committed even if its caller leaves.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

import structlog

from headrace.errors import HeadraceError, Overloaded
from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.engine import APPEND_COST_BYTES, WAITING_BYTES_MAX
from services.memory.storage.postgres.committing import commit_appends
from services.memory.storage.postgres.staging import Append
from services.runtime.auth.identity import get_identity

if TYPE_CHECKING:
    from collections.abc import Collection

    from services.memory.encryption.keyring import Keyring
    from services.memory.log.chat import Chat, Span
    from services.memory.log.lines import Known
    from services.memory.storage.leases import Lease
    from services.memory.storage.outbox import Webhooks
    from services.memory.storage.postgres.cached_chat import CachedChat, ChatCache
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.notifications import Notifications
    from services.memory.storage.postgres.staging import Answers

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
        """Commit `lines`. After a HeadraceError nothing was appended; after Overloaded nobody knows."""
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
            async with cached.lock:  # let go after each round: others read the chat
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
        self._peers.notify_change(cached.chat.chat_id)
        if has_deliveries:
            self._webhooks.wake()
        return answers
