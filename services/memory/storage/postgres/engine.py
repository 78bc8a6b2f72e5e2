from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing

import asyncpg

from headrace.errors import Overloaded
from services.memory.encryption.master_keys import OpenKeys, open_no_keys
from services.memory.log.chat_watch import ChatWatch
from services.memory.storage.audit import AUDIT_TENANT, AuditTrail
from services.memory.storage.encrypted.reencryption import Rewriting
from services.memory.storage.engine import Engine
from services.memory.storage.gates.watch import GateWatch
from services.memory.storage.lru import CACHE_BYTES_MAX
from services.memory.storage.postgres.appending import AppendQueue
from services.memory.storage.postgres.audit import AuditTable
from services.memory.storage.postgres.blobs import PostgresBlobs
from services.memory.storage.postgres.cached_chat import ChatCache
from services.memory.storage.postgres.chats import PostgresChats
from services.memory.storage.postgres.connection.pool import Database, Limits, open_database
from services.memory.storage.postgres.connection.statements import PostgresSql
from services.memory.storage.postgres.encryption import ChatRewriting, PostgresDataKeys
from services.memory.storage.postgres.erasing import RECEIPT_AFTER_S, PostgresEraser
from services.memory.storage.postgres.gates import PostgresGates
from services.memory.storage.postgres.index import PostgresIndex
from services.memory.storage.postgres.key_uses import PostgresKeyUses
from services.memory.storage.postgres.leases import PostgresLeases
from services.memory.storage.postgres.migrations import migrate_tables
from services.memory.storage.postgres.notifications import Notifications
from services.memory.storage.postgres.outbox import NEXT_PLACE
from services.memory.storage.postgres.spend import PostgresSpend
from services.memory.storage.records.deliveries import Webhooks
from services.memory.storage.records.stores import make_stores
from services.runtime.clock import now_ms
from services.runtime.ending import CannotServe, guard_task, guarding


async def migrate_database(database: Database) -> None:
    """Add missing tables and columns. Raises CannotServe if the database refuses, or is of a later version."""
    try:
        is_known = await database.run(migrate_tables)
    except Overloaded as error:
        if isinstance(error.__cause__, asyncpg.SyntaxOrAccessError | asyncpg.InvalidSchemaNameError):
            why = "its user needs the right to create tables in the schema, and owns those that are there"
            raise CannotServe(f"the database refuses: {error.__cause__}; {why}") from error
        raise
    if not is_known:
        raise CannotServe("the database is of a later version than this program: it is too old")


_HAS_CHATS = "SELECT EXISTS (SELECT FROM chats)"


@asynccontextmanager
async def open_postgres(
    url: str,
    limits: Limits,
    *,
    cache_bytes_max: int = CACHE_BYTES_MAX,
    clock: Callable[[], int] = now_ms,
    audit_tenant: str = AUDIT_TENANT,
    scrub_rewrites: bool = False,
    receipt_after_s: float = RECEIPT_AFTER_S,
    open_keys: OpenKeys = open_no_keys,
) -> AsyncGenerator[Engine]:
    """Open the chats of the database at `url`, adding missing tables; leaving the block commits pending writes.

    Leases end by `clock`, in Unix milliseconds. Records of no tenant are in the audit log of `audit_tenant`. With
    `scrub_rewrites` an erasure has the tables rewritten; its receipt follows the request by `receipt_after_s` or more.
    `open_keys` creates the keyring for the store's data keys.

    Raises:
        OSError: The database cannot be reached, or is of a later version.
    """
    async with open_database(url, limits) as database:
        await migrate_database(database)
        stored_keys = PostgresDataKeys(database)
        keys = await asyncio.to_thread(open_keys, stored_keys)
        if keys.is_on:
            has_chats = await database.run(lambda connection: connection.fetchval(_HAS_CHATS))
            await asyncio.to_thread(keys.open_store, is_empty=not has_chats)
        gate_watch, chat_watch = GateWatch(), ChatWatch()
        peers = Notifications(url, database.leave_other_servers, gate_watch, chat_watch)
        cache = ChatCache(cache_bytes_max)
        sql = PostgresSql(database, peers.get_state)
        webhooks = Webhooks(sql, NEXT_PLACE, keys)
        records = make_stores(sql, keys, webhooks)
        appending = AppendQueue(database, cache, peers, webhooks, keys)
        index = PostgresIndex(database, clock, keys, peers.get_state)
        chats = PostgresChats(database, cache, index, appending, keys, clock)
        sources = (ChatRewriting(keys, database, index).list_pieces, *records.sources)
        gates = PostgresGates(database, keys)
        audit = AuditTrail(AuditTable(database, clock), clock, audit_tenant)
        background = (
            keys.run_refreshes(),
            peers.run_connection(),
            gate_watch.run_reads(gates.find_gates),
            audit.run_retries(),
        )
        with closing(keys):
            async with guarding(*background), _committing(appending):
                yield Engine(
                    chats=chats,
                    index=index,
                    gates=gates,
                    gate_watch=gate_watch,
                    chat_watch=chat_watch,
                    spend=PostgresSpend(database),
                    leases=PostgresLeases(database, cache, clock, keys),
                    blobs=PostgresBlobs(database, keys),
                    records=records,
                    peers=peers,
                    audit=audit,
                    is_up=lambda: database.presence.is_up,
                    eraser=PostgresEraser(
                        database, cache, receipt_after_s=receipt_after_s, rewrites=scrub_rewrites, keys=keys
                    ),
                    rewriting=Rewriting(keys, stored_keys, sources, sql.scrub),
                    key_uses=PostgresKeyUses(database, clock),
                )


@asynccontextmanager
async def _committing(appending: AppendQueue) -> AsyncGenerator[None]:
    """Write queued appends inside the block; leaving it commits pending writes."""
    writing = guard_task(asyncio.create_task(appending.run_commits()))
    try:
        yield
    finally:
        appending.close()
        await writing
