"""The SQL of records in PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from services.memory.storage.postgres.connection.session import strip_nul

if TYPE_CHECKING:
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.postgres.connection.session import Connection
    from services.memory.storage.sql import Decision, Row, Statement, StoreState

T = TypeVar("T")

_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))"


class PostgresSql:
    def __init__(self, database: Database, get_state: Callable[[], StoreState | None]) -> None:
        self._database = database
        self._get_state = get_state

    @property
    def state(self) -> StoreState | None:
        return self._get_state()

    async def run(self, *statements: Statement) -> list[list[Row]]:
        async def run(connection: Connection) -> list[list[Row]]:
            if len(statements) == 1:
                return [await _fetch(connection, *statements[0])]
            async with connection.transaction():
                return [await _fetch(connection, *statement) for statement in statements]

        return await self._database.run(run)

    async def decide(self, lock: str, read: Statement, decide: Callable[[list[Row]], Decision[T]]) -> T:
        async def run(connection: Connection) -> T:
            async with connection.transaction():
                await connection.execute(_LOCK, lock)
                statements, result = decide(await _fetch(connection, *read))
                for statement in statements:
                    await _fetch(connection, *statement)
                return result

        return await self._database.run(run)

    async def scrub(self, imported: str = "") -> None:
        pass  # the eraser vacuums the tables


async def _fetch(connection: Connection, text: str, values: Sequence[Any]) -> list[Row]:
    return await connection.fetch(text, *map(strip_nul, values))
