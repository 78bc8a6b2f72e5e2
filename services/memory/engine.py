"""What keeps chats, as the service sees it: the embedded store (store.py), and later PostgreSQL.

A chat's views (context, history, state, checkpoints) are made of its lines, whoever keeps them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from services.memory.blobs import Blob
    from services.memory.chat import Chat, Span
    from services.memory.entries import ChatEntry, UnfinishedEntry
    from services.memory.leases import Lease
    from services.memory.lines import Known
    from services.memory.searching import Hit, Question


class Engine(Protocol):
    """All chats. What it says was done is on disk."""

    async def append(
        self, chat_id: str, lines: list[Known], size_bytes: int, lease: Lease | None = None
    ) -> tuple[Chat, Span | str]:
        """Commit `lines`, all or none, under the rules of Chat.check; a new chat is made by its query line, and a run
        that begins has `lease`. The answer to an append that was made before is what it was then, and to a query that
        the chat has the run that has it.
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

    async def page(self, size: int, token: str) -> tuple[list[ChatEntry], str]:
        """Up to `size` chats (0: the default), the last changed first, and the token of the next page."""
        ...

    async def chat_of(self, run_id: str) -> str | None:
        """The chat that a run belongs to."""
        ...

    async def unfinished(self) -> list[UnfinishedEntry]:
        """Runs that have begun and not ended, the oldest first."""
        ...

    async def fork(self, chat_id: str, n: int) -> str:
        """Make a chat of the first `n` lines of another."""
        ...

    async def delete(self, chat_id: str) -> None:
        """Delete the chat with its blobs. Raises NotFound, ChatBusy."""
        ...

    async def search(self, question: Question) -> list[Hit]:
        """The best places, the best first."""
        ...

    async def remember(self, text: str, request_id: str) -> str:
        """Keep a fact about the user, and return its id; that of the first one with this request id."""
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
