"""Data keys in a table. Everything blocks, and must not be called in an event loop's thread."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from services.memory.encryption.data_keys import DataKey
from services.memory.log.recovery import read_chat
from services.memory.log.sealing import decrypt_log, encrypt_log, is_current_log
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.event_rows import NO_EVENTS
from services.memory.storage.gates.rows import COLUMNS, GRANT_COLUMNS, GateEntry, GrantEntry
from services.memory.storage.index_rows import make_full_change
from services.memory.storage.postgres.blobs import ENCRYPTED, decode_blob, encode_blob
from services.memory.storage.postgres.statements import DELETE_TEXTS, store_lines

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.encrypted.reencryption import Piece
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection
    from services.memory.storage.postgres.index import PostgresIndex


_ALL = "SELECT key_id, tenant, version, created_at, wrapped FROM data_keys"

_ADD = """
INSERT INTO data_keys (key_id, tenant, version, created_at, wrapped) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, version) DO NOTHING RETURNING version
"""

ANSWER_S_MAX = 60.0
"""Longer than `Database.run` waits for a database, so that callers see its error."""


class PostgresDataKeys:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()

    def list_all(self) -> list[DataKey]:
        listing = self._database.run(lambda connection: connection.fetch(_ALL))
        return [DataKey(*row) for row in asyncio.run_coroutine_threadsafe(listing, self._loop).result(ANSWER_S_MAX)]

    def read_goal(self) -> str:
        reading = self._database.run(lambda connection: connection.fetchval("SELECT goal FROM encryption_goal"))
        return asyncio.run_coroutine_threadsafe(reading, self._loop).result(ANSWER_S_MAX)

    def write_goal(self, goal: str) -> None:
        statement = "UPDATE encryption_goal SET goal = $1"
        writing = self._database.run(lambda connection: connection.execute(statement, goal))
        asyncio.run_coroutine_threadsafe(writing, self._loop).result(ANSWER_S_MAX)

    def add(self, key: DataKey) -> bool:
        values = (key.key_id, key.tenant, key.version, key.created_at, key.wrapped)
        adding = self._database.run(lambda connection: connection.fetchval(_ADD, *values))
        if asyncio.run_coroutine_threadsafe(adding, self._loop).result(ANSWER_S_MAX) is not None:
            return True
        # An answer that is lost is repeated, and then finds its own key.
        return any(known.key_id == key.key_id for known in self.list_all())


_LOCK = "SELECT id, version, tenant FROM chats WHERE chat_id = $1 FOR UPDATE"
_LINES = "SELECT n, data FROM lines WHERE chat = $1 ORDER BY n"
_PUT_LINES = """
UPDATE lines SET data = new.data FROM unnest($2::bigint[], $3::bytea[]) AS new(n, data)
WHERE lines.chat = $1 AND lines.n = new.n
"""
_GATES = f"SELECT {COLUMNS} FROM gates WHERE chat = $1"
_PUT_GATE = "UPDATE gates SET reason = $3 WHERE run_id = $1 AND gate_id = $2"
_GRANTS = f"SELECT {GRANT_COLUMNS} FROM gate_grants WHERE chat = $1"
_PUT_GRANT = "UPDATE gate_grants SET event = $3 WHERE chat = $1 AND grant_id = $2"
_BLOBS = "SELECT blob_id, mime_type, data FROM blobs WHERE chat_id = $1 ORDER BY blob_id"
_PUT_BLOB = "UPDATE blobs SET mime_type = $3, data = $4 WHERE chat_id = $1 AND blob_id = $2"


class ChatRewriting:
    def __init__(self, keys: Keyring, database: Database, index: PostgresIndex) -> None:
        self._keys, self._database, self._index = keys, database, index
        self._rows = RowCipher(keys)

    async def list_pieces(self) -> AsyncGenerator[Piece]:
        for chat_id in await self._index.list_chats():
            yield f"chat {chat_id}", partial(self._rewrite_chat, chat_id)

    async def _rewrite_chat(self, chat_id: str) -> bool:
        question = "SELECT tenant FROM chats WHERE chat_id = $1"
        tenant = await self._database.run(lambda connection: connection.fetchval(question, chat_id))
        if not tenant:
            return False
        await self._keys.prepare_newest(tenant)
        return await self._database.run(partial(self._rewrite_rows, chat_id))

    async def _rewrite_rows(self, chat_id: str, connection: Connection) -> bool:
        async with connection.transaction():
            locked = await connection.fetchrow(_LOCK, chat_id)
            if locked is None or not locked[1]:
                return False
            row, version, tenant = locked
            blobs = await self._rewrite_blobs(chat_id, tenant, connection)
            lines = await connection.fetch(_LINES, row)
            before = b"".join(line[1] + b"\n" for line in lines)
            if is_current_log(before, self._keys, tenant):
                return blobs
            await self._keys.open_for([line[1] for line in lines])
            log = await asyncio.to_thread(decrypt_log, chat_id, before, self._keys)
            log = await asyncio.to_thread(encrypt_log, chat_id, log, self._keys, tenant)
            if log == before:
                return blobs
            await connection.execute(_PUT_LINES, row, [line[0] for line in lines], log.split(b"\n")[:-1])
            await self._rewrite_gates(row, connection)
            chat = await asyncio.to_thread(read_chat, chat_id, log, self._keys)
            await connection.execute(DELETE_TEXTS, row, tenant)
            await connection.execute("DELETE FROM spend WHERE chat = $1", row)
            # Its events have been reported already; its gates have more than their log says.
            change = replace(make_full_change(chat, 0), events=NO_EVENTS)
            change = replace(change, gates=replace(change.gates, opened=(), grants=()))
            await store_lines(connection, (row, version), [], self._rows.encrypt_change(change))
            return True

    async def _rewrite_gates(self, row: int, connection: Connection) -> None:
        gates = [GateEntry(*found) for found in await connection.fetch(_GATES, row)]
        grants = [GrantEntry(*found) for found in await connection.fetch(_GRANTS, row)]
        await self._keys.open_for([*(gate.reason for gate in gates), *(grant.event for grant in grants)])
        for gate in self._rows.decrypt_gates(gates):
            reason = self._rows.encrypt_gate(gate).reason
            await connection.execute(_PUT_GATE, gate.run_id, gate.gate_id, reason)
        for grant in self._rows.decrypt_grants(grants):
            await connection.execute(_PUT_GRANT, row, grant.grant_id, self._rows.encrypt_grant(grant).event)

    async def _rewrite_blobs(self, chat_id: str, tenant: str, connection: Connection) -> bool:
        has_changed = False
        for blob_id, mime_type, data in await connection.fetch(_BLOBS, chat_id):
            is_encrypted = mime_type == ENCRYPTED
            if self._keys.is_current(tenant, data) if is_encrypted else not self._keys.encrypts:
                continue
            await self._keys.open_for([data])
            blob = decode_blob(self._keys, chat_id, blob_id, mime_type, data)
            if blob.check_id(chat_id, blob_id) is not None:
                await connection.execute(_PUT_BLOB, chat_id, blob_id, *encode_blob(chat_id, blob, self._keys, tenant))
                has_changed = True
        return has_changed
