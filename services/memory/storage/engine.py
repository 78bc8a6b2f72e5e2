"""The interface of a store of chats. A write has been stored when its call returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from services.memory.log.chat import Chat, Span
    from services.memory.log.chat_watch import ChatWatch
    from services.memory.log.lines import Known
    from services.memory.log.media import Blob
    from services.memory.storage.audit import AuditTrail
    from services.memory.storage.claims import BudgetUse, SpendClaim, SpendDecision
    from services.memory.storage.encrypted.reencryption import Rewriting
    from services.memory.storage.gates.query import GateQuery, GrantQuery
    from services.memory.storage.gates.rows import GateEntry, GrantEntry
    from services.memory.storage.gates.watch import GateKey, GateWatch
    from services.memory.storage.index_progress import IndexProgress
    from services.memory.storage.index_rows import ChatEntry, UnfinishedEntry
    from services.memory.storage.key_uses import KeyUses
    from services.memory.storage.leases import Lease
    from services.memory.storage.paging import Page
    from services.memory.storage.records.stores import RecordStores
    from services.memory.storage.run_query import RunEntry, RunQuery
    from services.memory.storage.search import Hit, Question
    from services.memory.storage.spend import SpendAnswer, SpendQuery
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

    async def load_settled(self, chat_id: str) -> Chat:
        """Return the chat as `load` does, when all that it shows is stored: a disk that fails, or a fail-over, takes
        back what is only on its way. It takes as long as an append."""
        ...

    async def export(self, chat: Chat, *, as_stored: bool = False) -> bytes:
        """Return the chat's log, decrypted unless `as_stored`."""
        ...

    async def fork(self, chat_id: str, n: int, owner: Identity, target: str) -> None:
        """Make a chat `target` of `owner`'s of the first `n` lines.

        Raises InvalidRequest if there is one already, and ChatBusy if the chat was deleted, or something erased from
        it, since it was read: nobody who has looked for what the copy says has found it. Nothing is copied then.
        """
        ...

    async def import_log(self, chat_id: str, log: bytes) -> None:
        """Make a chat of a log of valid lines. Raises InvalidRequest if the chat exists."""
        ...

    async def delete(self, chat_id: str) -> None:
        """Delete the chat with its blobs, also one whose key cannot be had: of that no run can come to its end, and
        only one that somebody owns keeps it. Raises NotFound, ChatBusy."""
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

    async def find_row(self, chat_id: str) -> ChatEntry:
        """Return the chat's row with its name and title as they stand, for which no key is needed. Raises NotFound."""
        ...

    async def list_rows(self, owner: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        """Return what list_page does, with names and titles as they stand."""
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
    async def put_all(self, chat_id: str, tenant: str, blobs: Iterable[Blob]) -> None:
        """Keep blobs of a tenant's chat, which may be still to come."""
        ...

    async def load(self, chat_id: str, blob_id: str) -> Blob | None:
        """Return the blob if the chat has it."""
        ...

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        """Return what `load` does, for threads beside the event loop's. Blocks."""
        ...

    async def list_all(self, chat_id: str) -> list[Blob]: ...

    async def list_ids(self, chat_id: str) -> list[str]: ...

    async def delete_each(self, chat_id: str, blob_ids: Collection[str]) -> None:
        """Delete blobs, which need not be there; none of them comes back, over a power cut too, when this returns."""
        ...

    async def delete_orphans(self, age_s: float) -> list[str]:
        """Delete blobs of chats that do not exist, where the last was put over `age_s` ago; return the chats' ids."""
        ...

    async def finish_deletions(self) -> None:
        """Delete what a deletion of a chat has left, if it was cut. Raises Overloaded where that cannot be done yet."""
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
    chat_watch: ChatWatch
    spend: SpendIndex
    leases: Leases
    blobs: Blobs
    records: RecordStores
    peers: PeerNews
    audit: AuditTrail
    is_up: Callable[[], bool]
    """Whether the last call reached the store."""
    eraser: StoreEraser
    rewriting: Rewriting
    """What is stored, to be encrypted as it should be."""
    key_uses: KeyUses

    async def close_watches(self) -> None:
        """End those who watch gates and chats, as the service stops."""
        await self.gate_watch.close()
        self.chat_watch.close()


IsHeld: TypeAlias = "Callable[[str, str], bool]"
"""Says of a user and a chat of theirs whether a hold keeps it."""


class StoreEraser(Protocol):
    @property
    def settles_s(self) -> float:
        """After which time every service of the store has seen a record; 0: there is only this one."""
        ...

    @property
    def receipt_after_s(self) -> float:
        """After which time no service has a request on its way that it has taken before it has seen a record."""
        ...

    async def list_users(self, tenant: str) -> set[str]:
        """List the users that the tenant's chats, runs and sums name."""
        ...

    async def rewrite_chat(self, chat_id: str, redact: Callable[[bytes], bytes]) -> None:
        """Put what `redact` makes of the chat's log, which has as many lines, in its place; it is called in a thread.

        Raises:
            ChatBusy: A run of it is unfinished.
            NotFound: It does not exist.
        """
        ...

    async def list_unreadable_chats(self, tenant: str) -> list[str]:
        """List the tenant's chats of which only a lost key would say whose they are."""
        ...

    async def delete_unreadable_chat(self, chat_id: str) -> None:
        """Delete a chat that list_unreadable_chats has named."""
        ...

    async def rename_spender(self, tenant: str, user: str, name: str) -> int:
        """Give another name to what deleted chats have cost the user, and forget by which keys; return the number of
        rows."""
        ...

    async def delete_spend(self, tenant: str) -> int:
        """Delete all that the tenant's deleted chats have cost."""
        ...

    async def scrub(self, tenant: str, is_held: IsHeld) -> None:
        """Clear what deleted rows have left in the store's files, and what nobody can say of whose it is but that it is
        the tenant's, if anybody's."""
        ...
