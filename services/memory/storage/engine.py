"""What keeps chats, as the service sees it: the embedded store (store.py), or a database (postgres/store.py).

A chat's views (context, history, state, checkpoints) are made of its lines, whoever keeps them.
"""

from __future__ import annotations

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


class Engine(Protocol):
    """All chats. What it says was done is on disk."""

    @property
    def is_up(self) -> bool:
        """Whether what keeps them can be used, as the last call found it."""
        ...

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        """Commit `lines`, all or none, under the rules of Chat.check; a new chat is made by its query line, and a run
        that begins has `lease`, where its chat has no other unfinished runs than `beside` (None: whatever it has). The
        answer to an append that was made before is what it was then, and to a query that the chat has the run that has
        it.
        """
        ...

    async def chat(self, chat_id: str) -> Chat:
        """The chat with its lines. Raises NotFound."""
        ...

    async def log(self, chat: Chat) -> bytes:
        """The chat's log as it is exported: every committed line."""
        ...

    async def entry(self, chat_id: str) -> ChatEntry:
        """What is known of the chat without its lines. Raises NotFound."""
        ...

    async def page(self, owner: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        """The chats of `owner` on a page, the last changed first, and the token of the next page."""
        ...

    async def chat_of(self, run_id: str) -> str | None:
        """The chat that a run belongs to."""
        ...

    async def unfinished(self, chat_id: str | None = None, *, without_owner: bool = False) -> list[UnfinishedEntry]:
        """Runs that have begun and not ended, of one chat or all, the oldest first; or only those that nobody has."""
        ...

    async def all(self) -> list[str]:
        """Every chat."""
        ...

    async def unchanged_since(self, updated_at: int) -> list[str]:
        """Chats whose last line is older, and whose runs have all ended; the oldest first."""
        ...

    async def fork(self, chat_id: str, n: int) -> str:
        """Make a chat of the first `n` lines of another."""
        ...

    async def take_in(self, chat_id: str, log: bytes, blobs: Iterable[Blob]) -> None:
        """Make a chat of a log that holds valid lines alone. Raises InvalidRequest: there is such a chat."""
        ...

    async def delete(self, chat_id: str) -> None:
        """Delete the chat with its blobs. Raises NotFound, ChatBusy."""
        ...

    async def search(self, owner: Identity, question: Question) -> list[Hit]:
        """The best places in what is `owner`'s, the best first."""
        ...

    async def remember(self, owner: Identity, text: str, request_id: str) -> str:
        """Keep a fact about `owner`, and return its id; that of the first one with this request id."""
        ...

    async def facts(self) -> list[Fact]:
        """All that was remembered, the first first."""
        ...

    async def take_in_facts(self, facts: Iterable[Fact]) -> None:
        """Keep facts of another engine as they are; what is known stays."""
        ...

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        """Make `owner` the run's owner; nothing that an earlier one asked for is committed after this."""
        ...

    def first_lease(self, owner: str, ttl_ms: int) -> Lease:
        """The lease of a run that `owner` is about to begin."""
        ...

    async def renew(self, run_id: str, generation: int, ttl_ms: int) -> Lease: ...

    async def release(self, run_id: str, generation: int) -> None: ...

    async def put_blobs(self, chat_id: str, blobs: Iterable[Blob]) -> None: ...

    def find_blob(self, chat_id: str, blob_id: str) -> Blob | None:
        """The blob, if the chat has it. Blocks."""
        ...

    async def blobs(self, chat_id: str) -> list[Blob]:
        """All blobs of a chat."""
        ...

    async def delete_orphan_blobs(self, age_s: float) -> list[str]:
        """Delete the blobs of chats that have never come to be, or whose deletion was cut short, when nobody has put
        any there for so long; the ids of those chats.
        """
        ...

    def share(self, news: str) -> None:
        """Tell other services over these chats, which can do without it: it may never arrive."""
        ...

    def listen(self, hear: Callable[[str], None]) -> None:
        """Have `hear` called with what others share."""
        ...
