"""Erasing in a database that several services write to."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

from services.memory.encryption.keyring import NO_KEYS
from services.memory.log.chat import chat_not_found
from services.memory.log.encryption.lines import decrypt_log
from services.memory.storage.people.erasing import DELETE_DELIVERIES_ABOUT, make_name_member
from services.memory.storage.postgres.chats import make_chat
from services.memory.storage.postgres.spend.rows import delete_spend_of_chat, rename_spender

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.people.erasing import IsHeld
    from services.memory.storage.postgres.cached_chat import ChatCache
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection
    from services.memory.storage.postgres.notifications import Notifications

SETTLES_S = 3.0
"""Three looks of every service at the records (data/refusals.py)."""

RECEIPT_AFTER_S = 120.0
"""A service may have been cut off from the database: for KNOWN_S it believes what it has seen (data/refusals.py), a
call waits PATIENCE_S for the database, as long for a connection, and then for its statements; an append does so behind
another one of its chat."""

SCRUB_TIMEOUT_S = 6 * 3600.0
"""Of one table: a large one takes what it takes."""

_READ_LOG = "SELECT data FROM lines WHERE chat = $1 ORDER BY n"

_USERS = """
SELECT user_name FROM chats WHERE tenant = $1 UNION SELECT of_user FROM runs WHERE of_tenant = $1
UNION SELECT user_name FROM facts WHERE tenant = $1 UNION SELECT user_name FROM schedules WHERE tenant = $1
UNION SELECT user_name FROM spend WHERE tenant = $1
"""

_COUNT_FACTS = """
SELECT count(*), count(*) FILTER (WHERE deleted_at = 0) FROM facts WHERE tenant = $1 AND user_name = $2
"""
_AGENTS = "SELECT record_id, data FROM tenant_agents WHERE tenant = $1 ORDER BY record_id"
_DELETE_AGENTS = "DELETE FROM tenant_agents WHERE record_id = ANY($1::text[])"
_DELETE_FACTS = "DELETE FROM facts WHERE tenant = $1 AND user_name = $2 RETURNING deleted_at = 0"
_FORGET_COPIES = "DELETE FROM texts WHERE kind = 'fact' AND tenant = $1 AND user_name = $2"
_DELETE_DELIVERIES = "DELETE FROM deliveries WHERE tenant = $1 AND run_id = ANY($2::text[]) RETURNING 1"
_DELETE_SPEND = "DELETE FROM spend WHERE chat = 0 AND tenant = $1 RETURNING 1"
_DELETE_VERSIONS = "DELETE FROM agent_versions WHERE tenant = $1 RETURNING 1"

_SCRUBBED = (
    *("lines", "texts", "facts", "blobs", "chats", "runs", "schedules", "gates", "gate_grants", "grants", "spend"),
    *("webhooks", "deliveries", "agent_versions", "tenant_agents", "api_keys", "data_records"),
)


class PostgresEraser:
    def __init__(
        self,
        database: Database,
        cache: ChatCache,
        peers: Notifications,
        *,
        receipt_after_s: float = RECEIPT_AFTER_S,
        rewrites: bool = False,
        keys: Keyring = NO_KEYS,
    ) -> None:
        """With `rewrites` scrubbing writes each table anew, under a lock that everybody waits for."""
        self.settles_s = SETTLES_S
        self.receipt_after_s = receipt_after_s
        self._database = database
        self._cache = cache
        self._peers = peers
        self._rewrites = rewrites
        self._keys = keys

    async def list_users(self, tenant: str) -> list[str]:
        rows = await self._database.run(lambda connection: connection.fetch(_USERS, tenant))
        return sorted(row[0] for row in rows)

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
        self._peers.notify_change(chat_id)

    async def count_facts(self, tenant: str, user: str) -> tuple[int, int]:
        row = await self._database.run(lambda connection: connection.fetchrow(_COUNT_FACTS, tenant, user))
        return row[0], row[1]

    async def list_unreadable(self, tenant: str) -> dict[str, list[str]]:
        if not self._keys.is_on:
            return {}
        await self._keys.open_all(tenant)
        # All else has columns that say whose it is.
        rows = await self._database.run(lambda connection: connection.fetch(_AGENTS, tenant))
        readable = {row[0] for row in await self._keys.select_readable(rows, lambda row: row[1])}
        return {"agents": [row[0] for row in rows if row[0] not in readable]}

    async def delete_unreadable(self, kind: str, names: Collection[str]) -> None:
        assert kind == "agents", "nothing else is ever named"
        await self._database.run(lambda connection: connection.execute(_DELETE_AGENTS, list(names)))

    async def delete_facts(self, tenant: str, user: str) -> int:
        async def delete(connection: Connection) -> int:
            async with connection.transaction():
                rows = await connection.fetch(_DELETE_FACTS, tenant, user)
                await connection.execute(_FORGET_COPIES, tenant, user)
                return sum(row[0] for row in rows)

        return await self._database.run(delete)

    async def delete_deliveries(self, tenant: str, run_ids: Collection[str]) -> int:
        return await self._count(_DELETE_DELIVERIES, tenant, list(run_ids))

    async def delete_deliveries_about(self, tenant: str, user: str) -> int:
        return await self._count(DELETE_DELIVERIES_ABOUT, tenant, make_name_member(user))

    async def rename_spender(self, tenant: str, user: str, name: str) -> int:
        return await self._database.run(partial(rename_spender, tenant, user, name))

    async def delete_spend(self, tenant: str) -> int:
        return await self._count(_DELETE_SPEND, tenant)

    async def delete_agents(self, tenant: str) -> int:
        return await self._count(_DELETE_VERSIONS, tenant)

    async def scrub(self, tenant: str, is_held: IsHeld) -> None:
        how = "FULL, ANALYZE" if self._rewrites else "ANALYZE"  # samples of users' names go with their rows

        async def vacuum(connection: Connection) -> None:
            await connection.execute("SET statement_timeout = 0")
            try:
                for table in _SCRUBBED:
                    await connection.execute(f"VACUUM ({how}) {table}", timeout=SCRUB_TIMEOUT_S)
            finally:
                await connection.execute("RESET statement_timeout")

        await self._database.run(vacuum)

    async def _count(self, statement: str, *values: Any) -> int:
        return len(await self._database.run(lambda connection: connection.fetch(statement, *values)))
