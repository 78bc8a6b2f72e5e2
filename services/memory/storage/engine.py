"""The interface of a store of chats, in parts: storage/files, which one process owns, and storage/postgres have it.

The views of a chat (context, history, state, checkpoints) are made of its lines, whatever keeps them. A call that has
returned has stored what it says.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from services.memory.log.blobs import Blob
    from services.memory.log.chat import Chat, Span
    from services.memory.log.lines import Known
    from services.memory.storage.index_rows import ChatEntry, UnfinishedEntry
    from services.memory.storage.leases import Lease
    from services.memory.storage.paging import Page
    from services.memory.storage.search import Hit, Question
    from services.memory.storage.user_facts import Fact
    from services.runtime.auth.identity import Identity

WAITING_BYTES_MAX = 128 * 1024 * 1024
"""Appends that wait to be stored: twice the largest message, so that one of those does not refuse all others."""

APPEND_COST_BYTES = 1024
"""Counted for an append beside its lines."""


class ChatLogs(Protocol):
    """The logs of all chats."""

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        """Commit `lines`, all or none, under the rules of Chat.check.

        A query line makes a new chat. A run that begins gets `lease`, and is refused where its chat has unfinished runs
        other than `beside` (None: any are allowed). Returns the numbers of the lines; those of the first time for an
        append that is repeated, and the id of the first run for a query that is repeated.
        """
        ...

    async def load(self, chat_id: str) -> Chat:
        """Return the chat with its lines. Raises NotFound."""
        ...

    async def export(self, chat: Chat) -> bytes:
        """Return every committed line of the chat as its log file has it."""
        ...

    async def fork(self, chat_id: str, n: int) -> str:
        """Make a chat of the first `n` lines of another, and return its id."""
        ...

    async def import_log(self, chat_id: str, log: bytes) -> None:
        """Make a chat of a log that holds valid lines alone. Raises InvalidRequest where the chat exists."""
        ...

    async def delete(self, chat_id: str) -> None:
        """Delete the chat with its blobs. Raises NotFound, ChatBusy."""
        ...


class ChatIndex(Protocol):
    """The rows of all chats, which answer without reading their lines."""

    async def find_entry(self, chat_id: str) -> ChatEntry:
        """Return the chat's row. Raises NotFound."""
        ...

    async def list_page(self, owner: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        """Return a page of the owner's chats, the last changed first, and the token of the next page."""
        ...

    async def find_chat_of_run(self, run_id: str) -> str | None: ...

    async def list_unfinished(
        self, chat_id: str | None = None, *, without_owner: bool = False
    ) -> list[UnfinishedEntry]:
        """List runs that have not ended, the oldest first: of one chat or of all; or only those without a lease."""
        ...

    async def list_chats(self) -> list[str]: ...

    async def list_unchanged_since(self, updated_at: int) -> list[str]:
        """List chats whose last line is older and whose runs have all ended, the oldest first."""
        ...

    async def search(self, owner: Identity, question: Question) -> list[Hit]:
        """Return the places of the owner's texts that match best, the best first."""
        ...


class Leases(Protocol):
    """The owners of runs."""

    def create_first(self, owner: str, ttl_ms: int) -> Lease:
        """Make the lease of a run that `owner` is about to begin. Raises InvalidRequest: the time is out of bounds."""
        ...

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        """Make `owner` the run's owner; nothing that an earlier owner asked for is committed after this.

        Raises:
            NotFound: The chat has no such run.
            StaleLease: Another owner's lease holds, or the run has ended.
            InvalidRequest: The time is out of bounds.
        """
        ...

    async def renew(self, run_id: str, generation: int, ttl_ms: int) -> Lease:
        """Prolong a lease, from now on. Raises StaleLease where it was lost, InvalidRequest as create_first does."""
        ...

    async def release(self, run_id: str, generation: int) -> None:
        """End a lease if it still holds; the run's last owner stays known."""
        ...


class Blobs(Protocol):
    """The blobs of all chats."""

    async def put_all(self, chat_id: str, blobs: Iterable[Blob]) -> None: ...

    def find(self, chat_id: str, blob_id: str) -> Blob | None:
        """Return the blob if the chat has it. Blocks."""
        ...

    async def list_all(self, chat_id: str) -> list[Blob]: ...

    async def delete_orphans(self, age_s: float) -> list[str]:
        """Delete the blobs of chats that do not exist, where the last was put more than `age_s` ago; return the ids.

        Such a chat was never begun, or its deletion was cut short.
        """
        ...


class UserFacts(Protocol):
    """Facts that are remembered about users."""

    async def remember(self, owner: Identity, text: str, request_id: str) -> str:
        """Keep a fact and return its id; for a request id that is known, the id of the fact that it made."""
        ...

    async def list_all(self) -> list[Fact]:
        """List the facts of all users in the order in which they were kept."""
        ...

    async def import_all(self, facts: Iterable[Fact]) -> None:
        """Keep facts of another store as they are; those that are known stay."""
        ...


class PeerNews(Protocol):
    """Messages between the services that share a store. Any of them may be lost."""

    def share(self, news: str) -> None: ...

    def listen(self, receive: Callable[[str], None]) -> None:
        """Have `receive` called with each message of another service."""
        ...


@dataclass(frozen=True, slots=True)
class Engine:
    """A store of chats that is open."""

    chats: ChatLogs
    index: ChatIndex
    leases: Leases
    blobs: Blobs
    facts: UserFacts
    peers: PeerNews
    is_up: Callable[[], bool]
    """Whether the store could be reached by the last call."""
