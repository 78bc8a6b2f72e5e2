"""Data keys in a table. Everything blocks, and is called in no event loop's thread."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.memory.encryption.data_keys import DataKey

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.pool import Database

_ALL = "SELECT key_id, tenant, version, created_at, wrapped FROM data_keys"

_ADD = """
INSERT INTO data_keys (key_id, tenant, version, created_at, wrapped) VALUES ($1, $2, $3, $4, $5)
ON CONFLICT (tenant, version) DO NOTHING RETURNING version
"""

ANSWER_S_MAX = 60.0
"""Longer than a database is waited for by `Database.run`, so that its error is the one that is seen."""


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
