"""Erasing in a database that several services write to."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from services.memory.encryption.keyring import NO_KEYS
from services.memory.log.chat import chat_not_found
from services.memory.log.sealing import decrypt_log
from services.memory.storage.postgres.chats import make_chat
from services.memory.storage.postgres.spend import delete_spend, delete_spend_of_chat, rename_spender

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.engine import IsHeld
    from services.memory.storage.postgres.cached_chat import ChatCache
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection


DRAIN_S = 5.0
"""Twice the time in which every service sees a new record (LOOK_S of data/erasures.py, and HEARTBEAT_S)."""

RECEIPT_AFTER_S = 120.0
"""Worst case for a service cut off from the database: it trusts its last known state for KNOWN_S (data/erasures.py), a
call waits PATIENCE_S for the database, as long for a connection, and then for its statements; an append may wait as
long for an earlier one of its chat."""

SCRUB_TIMEOUT_S = 6 * 3600.0
"""Maximum for one table; large ones take long."""

_READ_LOG = "SELECT data FROM lines WHERE chat = $1 ORDER BY n"

_USERS = """
SELECT user_name FROM chats WHERE tenant = $1 UNION SELECT of_user FROM runs WHERE of_tenant = $1
UNION SELECT user_name FROM spend_sums WHERE tenant = $1 AND scope = 'user'
"""

_SCRUBBED = (
    *(
        "lines",
        "texts",
        "facts",
        "blobs",
        "chats",
        "runs",
        "schedules",
        "gates",
        "gate_grants",
        "grants",
        "spend",
        "spend_sums",
    ),
    *("webhooks", "deliveries", "agent_versions", "tenant_agents", "api_keys", "data_records"),
)


class PostgresEraser:
    def __init__(
        self,
        database: Database,
        cache: ChatCache,
        *,
        receipt_after_s: float = RECEIPT_AFTER_S,
        rewrites: bool = False,
        keys: Keyring = NO_KEYS,
    ) -> None:
        """With `rewrites` scrubbing rewrites each table, under a lock that blocks all other access."""
        self.drain_s = DRAIN_S
        self.receipt_after_s = receipt_after_s
        self._database = database
        self._cache = cache
        self._rewrites = rewrites
        self._keys = keys

    async def list_users(self, tenant: str) -> set[str]:
        rows = await self._database.run(lambda connection: connection.fetch(_USERS, tenant))
        return {row[0] for row in rows}

    async def rewrite_chat(self, chat_id: str, redact: Callable[[bytes], bytes]) -> None:
        cached = self._cache.use_chat(chat_id)

        async def rewrite(connection: Connection) -> None:
            async with connection.transaction():
                await cached.lock_row(connection, self._keys)
                if not cached.row:
                    raise chat_not_found(chat_id)
                cached.chat.check_idle()
                lines = await connection.fetch(_READ_LOG, cached.row)
                await self._keys.prepare(cached.chat.info.owner.tenant)
                stored = b"".join(line[0] + b"\n" for line in lines)
                log = await asyncio.to_thread(lambda: redact(decrypt_log(chat_id, stored, self._keys)))
                # Another row of the same id: every service that knows the one before reads the chat from its beginning.
                await delete_spend_of_chat(cached.row, connection)
                await cached.delete_row(connection)
                await make_chat(chat_id, log, self._keys, connection)

        async with cached.lock:
            await self._database.run(rewrite)
        self._cache.drop_chat(chat_id)

    async def list_unreadable_chats(self, tenant: str) -> list[str]:
        return []  # the columns of its rows state a chat's owner

    async def delete_unreadable_chat(self, chat_id: str) -> None:
        raise AssertionError("list_unreadable_chats names none")

    async def rename_spender(self, tenant: str, user: str, name: str) -> int:
        return await self._database.run(partial(rename_spender, tenant, user, name))

    async def delete_spend(self, tenant: str) -> int:
        return await self._database.run(partial(delete_spend, tenant))

    async def scrub(self, tenant: str, is_held: IsHeld) -> None:
        async def vacuum(connection: Connection) -> None:
            await connection.execute("SET statement_timeout = 0")
            try:
                for table in _SCRUBBED:
                    # Samples of users' names go with their rows; the largest table has none.
                    how = f"FULL {self._rewrites}, ANALYZE {table != 'lines'}"
                    await connection.execute(f"VACUUM ({how}) {table}", timeout=SCRUB_TIMEOUT_S)
            finally:
                await connection.execute("RESET statement_timeout")

        await self._database.run(vacuum)
