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
    from services.memory.storage.encrypted.reencryption import Rewriting
    from services.memory.storage.gates.query import GateQuery, GrantQuery
    from services.memory.storage.gates.rows import GateEntry, GrantEntry
    from services.memory.storage.gates.watch import GateKey, GateWatch
    from services.memory.storage.index_rows import ChatEntry, IndexProgress, UnfinishedEntry
    from services.memory.storage.key_uses import KeyUses
    from services.memory.storage.leases import Lease
    from services.memory.storage.paging import Page
    from services.memory.storage.records.stores import RecordStores
    from services.memory.storage.reservations import BudgetUse, SpendDecision, SpendReservation
    from services.memory.storage.run_query import RunEntry, RunQuery
    from services.memory.storage.search import Hit, Question
    from services.memory.storage.spend import SpendAnswer, SpendQuery
    from services.memory.storage.where import Place
    from services.runtime.auth.identity import Identity


WAITING_BYTES_MAX = 128 * 1024 * 1024
"""Maximum bytes of appends waiting to be stored: twice the largest message, so that one does not block all others."""

APPEND_COST_BYTES = 1024
"""Bytes counted for an append in addition to its lines."""


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

        A query line creates a new chat. A new run gets `lease`, and is refused if its chat has unfinished runs other
        than `beside` (None: any are allowed). A repeated append returns its first numbers; a repeated query, the id of
        its first run.
        """
        ...

    async def load(self, chat_id: str) -> Chat:
        """Return the chat with its lines. Raises NotFound."""
        ...

    async def load_durable(self, chat_id: str) -> Chat:
        """Like `load`, but waits until every line it returns is durable: a failing disk or a fail-over loses only
        pending writes. It takes as long as an append."""
        ...

    async def export(self, chat: Chat, *, as_stored: bool = False) -> bytes:
        """Return the chat's log, decrypted unless `as_stored`."""
        ...

    async def fork(self, chat_id: str, n: int, owner: Identity, target: str) -> None:
        """Create a chat `target` of `owner` from the first `n` lines.

        Raises InvalidRequest if the target exists, and ChatBusy, copying nothing, if the chat was deleted or redacted
        since it was read, because the erasure would miss the copy.
        """
        ...

    async def import_log(self, chat_id: str, log: bytes) -> None:
        """Create a chat from a log of valid lines. Raises InvalidRequest if the chat exists."""
        ...

    async def delete(self, chat_id: str) -> None:
        """Delete the chat with its blobs. Raises NotFound, ChatBusy.

        A chat with an unavailable key is deleted as well, unless one of its runs has an owner: none of its runs can
        end.
        """
        ...

    async def delete_together(self, chat_ids: Collection[str]) -> Collection[str]:
        """Delete chats with their blobs, as many as the store can delete in a few steps; return their ids. The others
        may be busy, or not exist."""
        ...


class ChatIndex(Protocol):
    """A view of the logs. While it is being built, lists return what is known so far, and queries that need everything
    raise IndexIncomplete; queries by a chat's id always work."""

    def get_progress(self) -> IndexProgress | None:
        """Return the index's progress; None: it is complete."""
        ...

    async def wait_until_complete(self) -> None: ...

    async def find_entry(self, chat_id: str) -> ChatEntry:
        """Return the chat's row. Raises NotFound."""
        ...

    async def find_row(self, chat_id: str) -> ChatEntry:
        """Return the chat's row with its stored name and title, for which no key is needed. Raises NotFound."""
        ...

    async def list_rows(
        self, who: Identity, page: Page, *, is_shared: bool = False
    ) -> tuple[list[ChatEntry], Place | None]:
        """Like list_page, with stored names and titles."""
        ...

    async def list_page(
        self, who: Identity, page: Page, *, is_shared: bool = False
    ) -> tuple[list[ChatEntry], Place | None]:
        """Return a page of the user's chats, or of others' chats that the user may read, last changed first, and the
        place of the next page."""
        ...

    async def find_chat_of_run(self, run_id: str) -> str | None:
        """Return the run's chat; None if it does not exist. Raises IndexIncomplete."""
        ...

    async def find_run_user(self, run_id: str) -> Identity | None:
        """Return the run's user; None if it does not exist."""
        ...

    async def list_unfinished(
        self, chat_id: str | None = None, *, without_owner: bool = False, may_lag: bool = False
    ) -> list[UnfinishedEntry]:
        """List unfinished runs, oldest first, of one chat or of all, optionally only those without a lease; with
        `may_lag` the last to lose theirs may be missing.

        For all chats, parked runs are included only when due, at most DUE_MAX of them.
        """
        ...

    async def list_runs(self, query: RunQuery) -> tuple[list[RunEntry], Place | None]:
        """Return a page of a tenant's runs, last started first, and the place of the next one."""
        ...

    async def list_chats(self) -> list[str]:
        """List all chats. Raises IndexIncomplete."""
        ...

    async def list_unchanged(self, updated_at: int, after: tuple[int, str] | None) -> list[ChatEntry]:
        """List chats with an older last line and no unfinished run, with stored titles: UNCHANGED_MAX, oldest first,
        after the one with this time and id. Raises IndexIncomplete."""
        ...

    async def search(self, owner: Identity, question: Question) -> list[Hit]:
        """Return the places of the owner's best matching texts, best first."""
        ...


class GateIndex(Protocol):
    """Gates at which runs wait for people: a view of the logs that includes every acknowledged append, as far as the
    chats' index is built."""

    async def find_gate(self, tenant: str, run_id: str, gate_id: str) -> GateEntry | None:
        """Return the gate, open or closed, of this tenant. Raises IndexIncomplete."""
        ...

    async def list_gates(self, query: GateQuery) -> tuple[list[GateEntry], Place | None]:
        """Return a page of open gates, first opened first, and the place of the next one."""
        ...

    async def find_gates(self, keys: Collection[GateKey]) -> list[GateEntry]:
        """Return the gates, open or closed, of all tenants."""
        ...

    async def list_gate_chats(self, tenant: str, since: int) -> list[str]:
        """List chats that have had gates and a line since `since` (Unix ms). Raises IndexIncomplete."""
        ...

    async def list_grants(self, query: GrantQuery) -> tuple[list[GrantEntry], Place | None]:
        """Return a page of active grants, oldest first, and the place of the next one."""
        ...


class SpendIndex(Protocol):
    """Spending: a view of the logs that includes every acknowledged append, and deleted chats."""

    async def reserve_spend(self, reservation: SpendReservation) -> SpendDecision | None:
        """Grant a run a share of budgets, one claim of a tenant at a time; None if the tenant has no such active run.

        Raises IndexIncomplete if a log that may have charges in a budget's period is not indexed yet.
        """
        ...

    async def measure_uses(self, reservation: SpendReservation) -> list[BudgetUse]:
        """Return the usage of each budget of the claim, in order, without its run's own grant."""
        ...

    async def sum_spend(self, query: SpendQuery) -> SpendAnswer:
        """Return the sums by group, up to one group more than may be shown. Raises IndexIncomplete like grant_claim."""
        ...


class Leases(Protocol):
    def create_first(self, owner: str, ttl_ms: int) -> Lease:
        """Create the lease of a run that `owner` is about to begin. Raises InvalidRequest if the duration is out of
        bounds."""
        ...

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        """Make `owner` the run's owner; lines of an earlier owner are no longer committed after this.

        Raises:
            NotFound: The chat has no such run.
            StaleLease: Another owner's lease is valid, or the run has ended.
            InvalidRequest: The duration is out of bounds.
        """
        ...

    async def renew(self, held: Mapping[str, int], ttl_ms: int) -> tuple[int, list[str]]:
        """Extend leases, given as generations by run, from now on; return the new end time and the runs that lost their
        leases. Raises InvalidRequest like create_first."""
        ...

    async def release(self, run_id: str, generation: int, due_at: int = 0) -> None:
        """End a lease if it is still valid; the run's last owner stays known.

        With `due_at` the run is parked until then: it has no owner, and any replica may acquire it.
        """
        ...


class Blobs(Protocol):
    async def put_all(self, chat_id: str, tenant: str, blobs: Iterable[Blob]) -> None:
        """Store blobs of a tenant's chat, which need not exist yet."""
        ...

    async def load(self, chat_id: str, blob_id: str) -> Blob | None:
        """Return the blob; None if the chat does not have it."""
        ...

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        """Like `load`, for threads other than the event loop's. Blocks."""
        ...

    async def list_all(self, chat_id: str) -> list[Blob]: ...

    async def list_ids(self, chat_id: str) -> list[str]: ...

    async def delete_each(self, chat_id: str, blob_ids: Collection[str]) -> None:
        """Delete blobs, existing or not; on return the deletion survives a power failure."""
        ...

    async def delete_orphans(self, age_s: float) -> list[str]:
        """Delete blobs of nonexistent chats, if the last was stored over `age_s` ago; return the chats' ids."""
        ...

    async def finish_deletions(self) -> None:
        """Complete interrupted deletions of chats. Raises Overloaded if that is not possible yet."""
        ...


class PeerNews(Protocol):
    """Messages between the services that share a store; any may be lost."""

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
    """The stored data that may need re-encryption."""
    key_uses: KeyUses

    async def close_watches(self) -> None:
        """End all watches of gates and chats, because the service stops."""
        await self.gate_watch.close()
        self.chat_watch.close()


IsHeld: TypeAlias = "Callable[[str, str], bool]"
"""Returns whether a hold protects the data of a user in one of their chats."""


class StoreEraser(Protocol):
    @property
    def drain_s(self) -> float:
        """Seconds until every service of the store has seen a new record; 0 if this is the only one."""
        ...

    @property
    def receipt_after_s(self) -> float:
        """Seconds until no service is still processing a request accepted before it saw a new record."""
        ...

    async def list_users(self, tenant: str) -> set[str]:
        """List the users named in the tenant's chats, runs and sums."""
        ...

    async def rewrite_chat(self, chat_id: str, redact: Callable[[bytes], bytes]) -> None:
        """Replace the chat's log by the result of `redact`, with the same number of lines; it is called in a thread.

        Raises:
            ChatBusy: One of its runs is unfinished.
            NotFound: It does not exist.
        """
        ...

    async def list_unreadable_chats(self, tenant: str) -> list[str]:
        """List the tenant's chats whose owner only a lost key could reveal."""
        ...

    async def delete_unreadable_chat(self, chat_id: str) -> None:
        """Delete a chat returned by list_unreadable_chats."""
        ...

    async def rename_spender(self, tenant: str, user: str, name: str) -> int:
        """Rename the user in the spending of deleted chats, and remove the API keys from it; return the number of
        rows."""
        ...

    async def delete_spend(self, tenant: str) -> int:
        """Delete all spending of the tenant's deleted chats."""
        ...

    async def scrub(self, tenant: str, is_held: IsHeld) -> None:
        """Clear traces of deleted rows in the store's files, and data that can only be attributed to the tenant, if to
        anyone."""
        ...
