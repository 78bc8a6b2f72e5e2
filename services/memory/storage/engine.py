"""The interface of a store of chats. A write has been stored when its call returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections import defaultdict
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from services.memory.log.blobs import Blob
    from services.memory.log.chat import Chat, Span
    from services.memory.log.lines import Known
    from services.memory.storage.agents import AgentVersion
    from services.memory.storage.audit.trail import AuditTrail
    from services.memory.storage.event_rows import OutsideEvent
    from services.memory.storage.gates.grant_query import GrantQuery
    from services.memory.storage.gates.grant_rows import GrantEntry
    from services.memory.storage.gates.query import GateQuery
    from services.memory.storage.gates.rows import GateEntry
    from services.memory.storage.gates.watch import GateKey, GateWatch
    from services.memory.storage.index_progress import IndexProgress
    from services.memory.storage.index_rows import ChatEntry, UnfinishedEntry
    from services.memory.storage.keys import StoredKey
    from services.memory.storage.leases import Lease
    from services.memory.storage.operating.claims import BudgetUse, SpendClaim, SpendDecision
    from services.memory.storage.operating.run_query import RunEntry, RunQuery
    from services.memory.storage.paging import Page
    from services.memory.storage.schedules import Schedule
    from services.memory.storage.search import Hit, Question
    from services.memory.storage.spend.query import SpendAnswer, SpendQuery
    from services.memory.storage.user_facts import Fact, MakeChange
    from services.memory.storage.webhooks import Backlog, Claim, Delivery, DeliveryQuery, TryResult, Webhook
    from services.runtime.auth.identity import Identity

WAITING_BYTES_MAX = 128 * 1024 * 1024
"""Limit on appends waiting to be stored: twice the largest message, so that one does not refuse all others."""

APPEND_COST_BYTES = 1024
"""Bytes counted for an append beside its lines."""


class ChatLogs(Protocol):
    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        """Commit `lines`, all or none, under the rules of Chat.check, and return their numbers.

        A query line makes a new chat. A new run gets `lease`, and is refused if its chat has unfinished runs other than
        `beside` (None: any are allowed). A repeated append returns its first numbers; a repeated query, the id of its
        first run.
        """
        ...

    async def load(self, chat_id: str) -> Chat:
        """Return the chat with its lines. Raises NotFound."""
        ...

    async def export(self, chat: Chat) -> bytes: ...

    async def fork(self, chat_id: str, n: int, owner: Identity) -> str:
        """Make a chat of `owner`'s of the first `n` lines, and return its id."""
        ...

    async def import_log(self, chat_id: str, log: bytes) -> None:
        """Make a chat of a log of valid lines. Raises InvalidRequest if the chat exists."""
        ...

    async def delete(self, chat_id: str) -> None:
        """Delete the chat with its blobs. Raises NotFound, ChatBusy."""
        ...


class ChatIndex(Protocol):
    """A view of the logs. While it is made, lists have what is known, and what must have all raises IndexIncomplete;
    what is asked for by a chat's id is as ever."""

    def get_progress(self) -> IndexProgress | None:
        """Return how far the index is; None: it has everything."""
        ...

    async def wait_until_complete(self) -> None: ...

    async def find_entry(self, chat_id: str) -> ChatEntry:
        """Return the chat's row. Raises NotFound."""
        ...

    async def list_page(self, owner: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        """Return a page of the owner's chats, the last changed first, and the next page's token."""
        ...

    async def list_shared(self, reader: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        """Return a page of others' chats that `reader` may read, as list_page does."""
        ...

    async def find_chat_of_run(self, run_id: str) -> str | None:
        """Return the run's chat. Raises IndexIncomplete."""
        ...

    async def find_run_user(self, run_id: str) -> Identity | None:
        """Return whose run it is; None if there is none."""
        ...

    async def list_unfinished(
        self, chat_id: str | None = None, *, without_owner: bool = False
    ) -> list[UnfinishedEntry]:
        """List unfinished runs, the oldest first, of one chat or of all, or only those without a lease.

        Of all chats' runs, parked ones are there when they are due, DUE_MAX of them at most.
        """
        ...

    async def list_runs(self, query: RunQuery) -> tuple[list[RunEntry], str]:
        """Return a page of a tenant's runs, the one that began last first, and the next page's token."""
        ...

    async def list_chats(self) -> list[str]:
        """List all chats. Raises IndexIncomplete."""
        ...

    async def list_unchanged_since(self, updated_at: int) -> list[str]:
        """List chats whose last line is older and whose runs have all ended, the oldest first. Raises
        IndexIncomplete."""
        ...

    async def search(self, owner: Identity, question: Question) -> list[Hit]:
        """Return the places of the owner's texts that match best, the best first."""
        ...


class GateIndex(Protocol):
    """Where runs wait for people: a view of the logs, complete for every append that was acknowledged, as far as the
    chats' index is made."""

    async def find_gate(self, tenant: str, run_id: str, gate_id: str) -> GateEntry | None:
        """Return the gate, open or closed, of this tenant. Raises IndexIncomplete."""
        ...

    async def list_gates(self, query: GateQuery) -> tuple[list[GateEntry], str]:
        """Return a page of open gates, the first opened first, and the next page's token."""
        ...

    async def find_gates(self, keys: Collection[GateKey]) -> list[GateEntry]:
        """Return the gates, open or closed, of all tenants."""
        ...

    async def list_gate_chats(self, tenant: str, since: int) -> list[str]:
        """List chats that have had gates and whose last line is not older. Raises IndexIncomplete."""
        ...

    async def list_grants(self, query: GrantQuery) -> tuple[list[GrantEntry], str]:
        """Return a page of grants in force, the oldest first, and the next page's token."""
        ...


class SpendIndex(Protocol):
    """What was spent: a view of the logs, complete for every append that was acknowledged, and of deleted chats."""

    async def grant_claim(self, claim: SpendClaim) -> SpendDecision | None:
        """Grant a run a part of budgets, one claim of a tenant at a time; None if it has no such run that goes on.

        Raises IndexIncomplete: a log that may have charges of a budget's period is not in the index yet.
        """
        ...

    async def measure_uses(self, claim: SpendClaim) -> list[BudgetUse]:
        """Return what is used of each budget of the claim, in their order; its run's own grant is in none."""
        ...

    async def sum_spend(self, query: SpendQuery) -> SpendAnswer:
        """Return the sums by group, one group more than may be shown where there are as many. Raises IndexIncomplete
        as grant_claim does."""
        ...


class Leases(Protocol):
    def create_first(self, owner: str, ttl_ms: int) -> Lease:
        """Make the lease of a run that `owner` is about to begin. Raises InvalidRequest if the time is out of
        bounds."""
        ...

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        """Make `owner` the run's owner; nothing from an earlier owner is committed after this.

        Raises:
            NotFound: The chat has no such run.
            StaleLease: Another owner's lease holds, or the run has ended.
            InvalidRequest: The time is out of bounds.
        """
        ...

    async def renew(self, held: Mapping[str, int], ttl_ms: int) -> tuple[int, list[str]]:
        """Prolong leases, given as generations by run, from now on; return the time at which they end and the runs
        whose leases were lost. Raises InvalidRequest as create_first does."""
        ...

    async def release(self, run_id: str, generation: int, due_at: int = 0) -> None:
        """End a lease if it still holds; the run's last owner stays known. With `due_at` the run is parked until then:
        nobody owns it, and anybody may acquire it."""
        ...


class Blobs(Protocol):
    async def put_all(self, chat_id: str, blobs: Iterable[Blob]) -> None: ...

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        """Return the blob if the chat has it. Blocks."""
        ...

    async def list_all(self, chat_id: str) -> list[Blob]: ...

    async def delete_orphans(self, age_s: float) -> list[str]:
        """Delete blobs of chats that do not exist, where the last was put over `age_s` ago; return the chats' ids."""
        ...


class AgentVersions(Protocol):
    async def put(self, tenant: str, agent_key: str, definition: bytes) -> AgentVersion:
        """Return the agent's version with this definition, which gets the next number if there is none.

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

    async def put(self, schedule: Schedule) -> bool:
        """Store the schedule, or return False if what is stored is not of the version before; 1 is the first one."""
        ...

    async def delete(self, schedule_id: str) -> None: ...


class Keys(Protocol):
    """API keys."""

    async def list_own(self, tenant: str) -> list[StoredKey]:
        """List the tenant's keys, the oldest first."""
        ...

    async def list_all(self) -> list[StoredKey]:
        """List all keys in the order of their last changes."""
        ...

    async def count_all(self) -> int: ...

    async def find(self, key_id: str) -> StoredKey | None: ...

    async def put(self, key: StoredKey) -> bool:
        """Store the key with the next revision, or return False if what is stored is not of the version before; 1 is
        the first one."""
        ...

    async def delete(self, key_id: str) -> None: ...

    async def list_changes(self, after_revision: int, count: int) -> list[StoredKey]:
        """List `count` keys whose last changes are behind a revision, in the order of these."""
        ...


class Webhooks(Protocol):
    """Webhooks, and the deliveries that appends have made for them."""

    async def list_own(self, tenant: str) -> list[Webhook]:
        """List the tenant's webhooks, the oldest first."""
        ...

    async def list_all(self) -> list[Webhook]: ...

    async def find(self, webhook_id: str) -> Webhook | None: ...

    async def put(self, webhook: Webhook) -> bool:
        """Store the webhook, or return False if what is stored is not of the version before; 1 is the first one."""
        ...

    async def delete(self, webhook_id: str) -> None:
        """Delete the webhook with its deliveries."""
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


class PeerNews(Protocol):
    """Messages between the services that share a store, any of which may be lost."""

    def share(self, news: str) -> None: ...

    def listen(self, receive: Callable[[str], None]) -> None: ...


@dataclass(frozen=True, slots=True)
class Engine:
    chats: ChatLogs
    index: ChatIndex
    gates: GateIndex
    gate_watch: GateWatch
    spend: SpendIndex
    leases: Leases
    blobs: Blobs
    agent_versions: AgentVersions
    facts: UserFacts
    schedules: Schedules
    keys: Keys
    webhooks: Webhooks
    peers: PeerNews
    audit: AuditTrail
    is_up: Callable[[], bool]
    """Whether the last call reached the store."""
