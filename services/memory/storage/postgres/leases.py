"""Who runs a run: a row of the run, changed while its chat is locked, so that no append is between two owners.

Leases end by the clock of the service that is asked; whoever is fenced is fenced by generations, whatever clocks say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.storage.leases import Lease, check_owned, lost
from services.memory.storage.postgres.statements import plain

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.storage.postgres.cached_chat import Held
    from services.memory.storage.postgres.connection.session import Connection

_LEASE = "SELECT owner, lease_generation, expires_at FROM runs WHERE run_id = $1"

_ACQUIRE = """
WITH chat AS (UPDATE chats SET version = version + 1 WHERE id = $1)
UPDATE runs SET owner = $3, lease_generation = $4, expires_at = $5 WHERE run_id = $2
"""

_RENEW = """
UPDATE runs SET expires_at = $3 WHERE run_id = $1 AND lease_generation = $2 AND expires_at > 0 AND NOT is_ended
RETURNING owner
"""

_RELEASE = "UPDATE runs SET expires_at = 0 WHERE run_id = $1 AND lease_generation = $2"


class Owners:
    """The leases of all runs, as they are in the database."""

    def __init__(self, clock: Callable[[], int]) -> None:
        self._clock = clock

    def now(self) -> int:
        """Unix milliseconds, by which leases end."""
        return self._clock()

    def first(self, owner: str, ttl_ms: int) -> Lease:
        """The lease of a run that `owner` is about to begin. Raises InvalidRequest: the time is out of bounds."""
        return Lease.until(owner, 0, self._clock(), ttl_ms)

    async def acquire(self, held: Held, run_id: str, owner: str, ttl_ms: int, connection: Connection) -> Lease:
        """Make `owner` the owner of a run. The lock of `held` is held.

        Raises:
            NotFound: The chat has no such run.
            StaleLease: Another owner's lease holds, or the run has ended.
            InvalidRequest: The time is out of bounds.
        """
        owner = plain(owner)
        async with connection.transaction():
            await held.lock_row(connection)
            run = check_owned(held.chat.facts.runs.get(run_id), held.chat.chat_id, run_id)
            before = Lease(*await connection.fetchrow(_LEASE, run_id))
            before.check_free(run_id, owner, self._clock())
            lease = Lease.until(owner, max(before.generation, run.generation) + 1, self._clock(), ttl_ms)
            await connection.execute(_ACQUIRE, held.row, run_id, lease.owner, lease.generation, lease.expires_at)
        held.version += 1
        return lease

    async def renew(self, run_id: str, generation: int, ttl_ms: int, connection: Connection) -> Lease:
        """Prolong a lease, from now on.

        Raises:
            StaleLease: It was lost.
            InvalidRequest: The time is out of bounds.
        """
        lease = Lease.until("", generation, self._clock(), ttl_ms)
        owner = await connection.fetchval(_RENEW, run_id, generation, lease.expires_at)
        if owner is None:
            raise lost(run_id, generation)
        return Lease(owner, generation, lease.expires_at)

    async def release(self, run_id: str, generation: int, connection: Connection) -> None:
        """Give a lease up, if it still is one; who had it stays known."""
        await connection.execute(_RELEASE, run_id, generation)
