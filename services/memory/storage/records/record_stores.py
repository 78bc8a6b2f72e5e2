"""What a store keeps beside the chats: agents and their versions, facts, schedules, keys, webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeVar

from msgspec.structs import replace

from headrace.errors import Overloaded
from services.runtime.randomness import new_hex

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

    from services.memory.storage.event_rows import OutsideEvent
    from services.memory.storage.people.records import StoredErasure, StoredHold
    from services.memory.storage.records.agents import AgentUse, AgentVersion, StoredAgent
    from services.memory.storage.records.keys import StoredKey
    from services.memory.storage.records.schedules import Schedule
    from services.memory.storage.records.user_facts import Fact, MakeChange
    from services.memory.storage.records.webhooks import Backlog, Claim, Delivery, DeliveryQuery, TryResult, Webhook
    from services.runtime.auth.identity import Identity

Record = TypeVar("Record", "StoredAgent", "StoredErasure", "StoredHold", "StoredKey", "Schedule", "Webhook")

TRIES_MAX = 20
"""Changes of others that one change waits for."""


async def change_record(
    what: str,
    record: Record,
    change: Callable[[Record], Record],
    put: Callable[[Record, int], Awaitable[bool]],
    find: Callable[[], Awaitable[Record | None]],
) -> Record | None:
    """Change what is stored, again for as long as others change it meanwhile; return None once it is gone.

    What a request repeats is stored once more, as it is: a database shows what it has not acknowledged yet, and a
    fail-over may forget it. It keeps its version, so that nobody else's change of it fails.

    Raises:
        Overloaded: Others change it all the time.
    """
    stored: Record | None = record
    for _ in range(TRIES_MAX):
        if stored is None:
            return None
        changed = change(stored)
        if changed != stored:
            changed = replace(changed, version=make_version())
        if await put(changed, stored.version):
            return changed
        stored = await find()
    raise Overloaded(f"the {what} is being changed by others; try again later")


def check_kept(what: str, record: Record | None) -> Record:
    """Return what change_record has returned of a record that was not deleted by a request.

    Raises:
        Overloaded: It is gone: whoever asks again stores it anew.
    """
    if record is None:
        raise Overloaded(f"the database has taken the {what} back in a fail-over; try again", retry_after_s=1.0)
    return record


async def keep_made(
    what: str,
    stored: Record,
    put: Callable[[Record, int], Awaitable[bool]],
    find: Callable[[], Awaitable[Record | None]],
) -> Record:
    """Return what the same request has stored before, stored once more. Raises as `change_record` and `check_kept`."""
    return check_kept(what, await change_record(what, stored, keep_record, put, find))


def make_version() -> int:
    """Return a number for what a record becomes, which it has never had: with one more than before, a change of what a
    fail-over has taken back would fit what somebody else has stored since."""
    return int(new_hex(7), 16) + 1


def keep_record(record: Record) -> Record:
    """Change nothing: what a request repeats."""
    return record


class AgentVersions(Protocol):
    async def put(self, tenant: str, agent_key: str, definition: bytes) -> tuple[AgentVersion, bool]:
        """Return the agent's version with this definition, and whether it is new: it gets the next number then.

        Raises QuotaExceeded for an agent that has had VERSIONS_MAX.
        """
        ...

    async def import_version(self, version: AgentVersion, definition: bytes) -> None:
        """Keep a version of another store, under its number where that is free here; a known one stays."""
        ...

    async def list_all(self) -> list[AgentVersion]:
        """List the versions of all agents, by tenant, key and number."""
        ...

    async def find(
        self, tenant: str, agent_key: str, *, version: int = 0, digest: str = ""
    ) -> tuple[AgentVersion, bytes] | None:
        """Return a version by its number, or by its hash where that is 0. Raises LogDamaged."""
        ...

    async def list_before(self, tenant: str, agent_key: str, before: int, count: int) -> list[AgentVersion]:
        """List `count` versions with smaller numbers, the newest first."""
        ...


class StoredAgents(Protocol):
    """Tenants' agents in force, and those that were removed of late."""

    async def list_all(self) -> list[StoredAgent]:
        """List the agents of all tenants in the order of their last changes."""
        ...

    async def find(self, tenant: str, agent_key: str) -> StoredAgent | None:
        """Return the agent, whatever case its key is written in."""
        ...

    async def put(self, agent: StoredAgent, before: int = 0) -> bool:
        """Store the agent with the next revision, or return False if what is stored is not of the version `before`; 0:
        there is none."""
        ...

    async def forget(self, before: int) -> None:
        """Delete the records of agents that were removed before a time, in Unix milliseconds."""
        ...

    async def measure(self, tenant: str) -> AgentUse:
        """Measure the agents that are not removed."""
        ...

    async def list_changes(self, after_revision: int, count: int) -> list[StoredAgent]:
        """List `count` agents whose last changes are behind a revision, in the order of these."""
        ...


class UserFacts(Protocol):
    async def list_visible(self, owner: Identity, *, with_vectors: bool = False) -> list[Fact]:
        """List the user's facts and the tenant's, tombstones included, in the order in which they were stored.

        Vectors, of which a user may have megabytes, are left out where reading them costs something.
        """
        ...

    async def change(self, owner: Identity, make: MakeChange) -> Fact:
        """Make a change of what `owner` sees, one at a time, and return its fact.

        `make` may be given facts without their vectors; what it changes may lose its vector, which is made anew.
        When this returns, a text that the change took away is in none of the store's files or tables.
        """
        ...

    async def list_all(self) -> list[Fact]:
        """List the facts of all users in the order in which they were kept."""
        ...

    async def import_all(self, facts: Iterable[Fact]) -> None:
        """Keep facts of another store as they are; known ones stay."""
        ...


class Schedules(Protocol):
    async def list_own(self, owner: Identity, after: tuple[int, str], count: int) -> list[Schedule]:
        """List `count` of the user's schedules, the oldest first, behind the one with this time and id."""
        ...

    async def list_own_ids(self, owner: Identity) -> list[str]:
        """List the ids of the user's schedules; in a folder not of those that cannot be read, nor whose they are."""
        ...

    async def list_all(self) -> list[Schedule]:
        """List the schedules of all users, the oldest first."""
        ...

    async def find(self, schedule_id: str) -> Schedule | None: ...

    async def count_own(self, owner: Identity) -> int: ...

    async def list_due(self, now: int, count: int) -> list[Schedule]:
        """List what is to begin a run by `now`: the first schedule of each user, then the second ones."""
        ...

    async def find_next_start(self, now: int) -> int:
        """Return when the first one is to begin after `now`; 0: none."""
        ...

    async def put(self, schedule: Schedule, before: int = 0) -> bool:
        """Store the schedule, or return False if what is stored is not of the version `before`; 0: there is none."""
        ...

    async def delete(self, schedule_id: str) -> None: ...


class Keys(Protocol):
    """API keys."""

    async def list_own(self, tenant: str, *, suspends: bool = False) -> list[StoredKey]:
        """List the tenant's keys, the oldest first, or what `suspends` its users."""
        ...

    async def list_all(self) -> list[StoredKey]:
        """List all keys in the order of their last changes."""
        ...

    async def count_all(self) -> int: ...

    async def find(self, key_id: str) -> StoredKey | None: ...

    async def put(self, key: StoredKey, before: int = 0) -> bool:
        """Store the key with the next revision, or return False if what is stored is not of the version `before`; 0:
        there is none."""
        ...

    async def delete(self, key_id: str) -> None: ...

    async def list_changes(self, after_revision: int, count: int) -> list[StoredKey]:
        """List `count` keys whose last changes are behind a revision, in the order of these."""
        ...


class Webhooks(Protocol):
    """Webhooks, and the deliveries that appends have made for them."""

    async def list_own(self, tenant: str) -> list[Webhook]:
        """List the tenant's webhooks, the oldest first, without those of single runs."""
        ...

    async def list_of_run(self, tenant: str, run_id: str) -> list[Webhook]:
        """List the webhooks of one run of the tenant, the oldest first."""
        ...

    async def count_of_runs(self, tenant: str) -> int:
        """Count the tenant's webhooks of single runs."""
        ...

    async def list_all(self) -> list[Webhook]:
        """List the webhooks of all tenants whose keys can be had."""
        ...

    async def list_ids(self, tenant: str) -> list[tuple[str, str]]:
        """List the ids of all webhooks of the tenant, and of which run each is, empty for none; no key is needed."""
        ...

    async def find(self, webhook_id: str) -> Webhook | None: ...

    async def put(self, webhook: Webhook, before: int = 0) -> bool:
        """Store the webhook, or return False if what is stored is not of the version `before`; 0: there is none."""
        ...

    async def delete(self, webhook_id: str) -> None:
        """Delete the webhook with its deliveries; no key is needed, as for delete_of_run."""
        ...

    async def delete_of_run(self, tenant: str, run_id: str) -> None:
        """Delete the webhooks of one run of the tenant."""
        ...

    async def add_event(self, event: OutsideEvent) -> None:
        """Deliver an event that no line causes to all webhooks that are told of it."""
        ...

    async def add_delivery(self, webhook_id: str, event: OutsideEvent) -> Delivery | None:
        """Deliver an event to one webhook, whatever it is told of; None if it was given it before."""
        ...

    async def list_deliveries(self, query: DeliveryQuery) -> list[Delivery]:
        """List deliveries, the newest first, and one more than the page has."""
        ...

    async def replay(self, webhook_id: str, event_ids: Sequence[str], now: int) -> int:
        """Deliver again what has ended, behind everything that waits; without ids all dead letters. Return how many."""
        ...

    async def claim(
        self, now: int, until: int, each: int, count: int, busy: Collection[str], left: defaultdict[str, int]
    ) -> list[Claim]:
        """Return what is to be tried now, and give it to nobody else before `until`: at most `count`, of these `each`
        for a webhook and one for a subject. The webhooks of `busy` are left out; `left` says how many a tenant may
        have."""
        ...

    async def find_next(self, now: int) -> int:
        """Return when the first delivery is to be tried after `now`; 0: none."""
        ...

    async def record(self, delivery: Delivery, result: TryResult) -> bool:
        """Store what became of a try; False if the delivery is not the caller's any more."""
        ...

    async def count_backlog(self) -> Backlog:
        """Count all webhooks' deliveries, and note which webhooks have too many."""
        ...

    async def forget(self, before: int) -> None:
        """Delete deliveries that have ended before, and dead letters above their limit."""
        ...

    def listen(self, wake: Callable[[], None]) -> None:
        """Call `wake` when this process has stored deliveries."""
        ...
