"""Commits appends in one statement; if another service has written, the chat is locked and read first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.storage.postgres.staging import StagedAppends
from services.memory.storage.postgres.statements import store_lines

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.postgres.cached_chat import CachedChat
    from services.memory.storage.postgres.connection.session import Connection
    from services.memory.storage.postgres.staging import Answers, Append

_GENERATIONS = "SELECT run_id, lease_generation FROM runs WHERE chat = $1 AND run_id = ANY($2)"


async def commit_appends(
    cached: CachedChat, appends: list[Append], keys: Keyring, connection: Connection
) -> tuple[Answers, bool]:
    """Commit what the chat can take, all lines of an append or none; the caller holds the lock of `cached`, and
    the tenant's key is ready. Return also whether webhooks have something to be told.

    It is safe to repeat: lines with a known uuid are not stored again.
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
            await cached.make_row(connection)
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
        await connection.execute("DELETE FROM texts WHERE chat = $1", row)
        await connection.execute("DELETE FROM spend WHERE chat = $1", row)
    numbered = [(line.n, data) for line, data in zip(staged.lines, staged.data, strict=True)]
    deliveries = await store_lines(connection, (row, version), numbered, change, staged.list_writers(), staged.leases)
    staged.has_deliveries = bool(deliveries)
    return deliveries is not None
