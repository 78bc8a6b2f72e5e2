"""The chats of one folder: opened when they are needed, kept while they are in use, written by one task."""

from __future__ import annotations

import asyncio
import threading
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from headrace.errors import InvalidRequest
from services.memory.log.blobs import Blob
from services.memory.log.chat import Chat, Span, check_chat, not_found
from services.memory.log.recovery import chat_of
from services.memory.storage import log_copy
from services.memory.storage.files.blob_folder import Blobs
from services.memory.storage.files.commits import Commits
from services.memory.storage.files.disk import Disk, disk_errors
from services.memory.storage.files.fact_log import Facts
from services.memory.storage.files.index import Index
from services.memory.storage.files.index_recovery import entry, indexed, loaded
from services.memory.storage.files.lease_table import Leases
from services.memory.storage.files.search import search
from services.memory.storage.index_rows import Change, ChatEntry, UnfinishedEntry, whole
from services.memory.storage.leases import Lease, check_owned, now_ms
from services.memory.storage.lru import HOT_BYTES_MAX, Hot
from services.memory.storage.user_facts import Fact, text_of

if TYPE_CHECKING:
    from services.memory.log.lines import Known
    from services.memory.storage.files.database import Database
    from services.memory.storage.paging import Page
    from services.memory.storage.search import Hit, Question
    from services.runtime.auth.identity import Identity


class Store:
    """All chats of a folder. Touched on the event loop only; the disk is reached in threads."""

    def __init__(
        self,
        disk: Disk,
        index: Index,
        commits: Commits,
        leases: Leases,
        facts: Facts,
        hot_bytes_max: int = HOT_BYTES_MAX,
    ) -> None:
        self._index = index
        self._disk = disk
        self._blobs = Blobs(disk.folder / "blobs")
        self._commits = commits
        self._leases = leases
        self._facts = facts
        self._open: WeakValueDictionary[str, Chat] = WeakValueDictionary()
        """Whoever holds a chat keeps it here: there are never two objects of one chat."""
        self._hot: Hot[Chat] = Hot(hot_bytes_max)
        """Held by nobody else perhaps."""
        self._loading = asyncio.Lock()
        """One log is read at a time: the disk is one, and no chat is read twice."""

    @property
    def is_up(self) -> bool:
        return True

    async def entry(self, chat_id: str) -> ChatEntry:
        """What is known of the chat without its log.

        Raises:
            NotFound: There is none.
        """
        entry = await self._index.get(chat_id)
        if entry is None:
            raise not_found(chat_id)
        return entry

    async def page(self, owner: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        return await self._index.page(owner, page)

    async def chat_of(self, run_id: str) -> str | None:
        return await self._index.chat_of(run_id)

    async def unfinished(self, chat_id: str | None = None, *, without_owner: bool = False) -> list[UnfinishedEntry]:
        expired_at = self._leases.now() if without_owner else None
        return await self._index.unfinished(chat_id, expired_at)

    async def search(self, owner: Identity, question: Question) -> list[Hit]:
        return await self._index.ask(lambda database: search(question, database, owner))

    async def all(self) -> list[str]:
        """Every chat."""
        return sorted(await self._index.ask(lambda database: database.logs()))

    async def unchanged_since(self, updated_at: int) -> list[str]:
        """Chats whose last line is older, and whose runs have all ended; the oldest first."""
        return await self._index.ask(lambda database: database.unchanged_since(updated_at))

    async def chat(self, chat_id: str) -> Chat:
        """The chat, from its log when it was not in use.

        Raises:
            NotFound: There is none.
        """
        chat = await self._opened(chat_id)
        if not chat.log and not chat.facts.is_damaged:
            raise not_found(chat_id)
        self._keep(chat)
        return chat

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        """Commit `lines`; a new chat is made by its query line. See Commits.append."""
        chat = await self._opened(chat_id)
        run_id = lines[0].run_id
        if run_id and run_id not in chat.facts.runs:
            check_chat(run_id, chat_id, await self._index.chat_of(run_id))
        answer = await self._commits.append(chat, lines, size_bytes, lease, beside)
        self._keep(chat)
        return chat, answer

    async def fork(self, chat_id: str, n: int) -> str:
        """Make a chat of the first `n` lines of another.

        Raises:
            NotFound: There is no such chat.
            LogDamaged: Its log is, so that nobody knows what its first lines are.
            OutOfRange: It has fewer lines.
        """
        chat = await self.chat(chat_id)
        log_copy.check(chat, n)
        target = str(uuid.uuid4())
        log, run_ids = await self.log(chat), list(chat.facts.runs)
        self._index.put(await asyncio.to_thread(self._copy, chat_id, target, log_copy.Cut(log, n, run_ids)))
        return target

    async def take_in(self, chat_id: str, log: bytes, blobs: Iterable[Blob]) -> None:
        """Make a chat of a log that holds valid lines alone.

        Raises:
            InvalidRequest: There is such a chat.
        """
        await self.put_blobs(chat_id, blobs)
        self._index.put(await asyncio.to_thread(self._write_new, chat_id, log))

    async def delete(self, chat_id: str) -> None:
        """Delete the chat and its blobs. See Commits.delete."""
        await self._commits.delete(await self.chat(chat_id))
        self._hot.let_go(chat_id)
        self._open.pop(chat_id, None)
        with disk_errors(chat_id):
            await asyncio.to_thread(self._blobs.delete, chat_id)

    async def log(self, chat: Chat) -> bytes:
        """The chat's log, as far as it is acknowledged."""
        size_bytes = chat.size_bytes
        with disk_errors(chat.chat_id):
            return (await asyncio.to_thread(self._disk.read, chat.chat_id))[:size_bytes]

    async def remember(self, owner: Identity, text: str, request_id: str) -> str:
        fact, _ = await asyncio.to_thread(self._facts.add, owner, text, request_id)
        await self._index.ask(lambda database: database.remember([text_of(fact)]))
        return fact.uuid

    async def facts(self) -> list[Fact]:
        return self._facts.all()

    async def take_in_facts(self, facts: Iterable[Fact]) -> None:
        await asyncio.to_thread(self._facts.take_in, facts)
        texts = [text_of(fact) for fact in self._facts.all()]
        await self._index.ask(lambda database: database.remember_all(texts))

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        """Make `owner` the run's owner. Nothing that an earlier one asked for is committed after this.

        Raises:
            NotFound: The chat has no such run.
            StaleLease: Another owner's lease holds, or the run has ended.
        """
        run = check_owned((await self.chat(chat_id)).facts.runs.get(run_id), chat_id, run_id)
        lease = await self._leases.acquire(run_id, run.generation, owner, ttl_ms)
        await self._commits.settled()
        return lease

    def first_lease(self, owner: str, ttl_ms: int) -> Lease:
        return self._leases.first_of(owner, ttl_ms)

    async def renew(self, run_id: str, generation: int, ttl_ms: int) -> Lease:
        return await self._leases.renew(run_id, generation, ttl_ms)

    async def release(self, run_id: str, generation: int) -> None:
        await self._leases.release(run_id, generation)

    async def put_blobs(self, chat_id: str, blobs: Iterable[Blob]) -> None:
        for blob in blobs:
            with disk_errors(chat_id):
                await asyncio.to_thread(self._blobs.put, chat_id, blob)

    async def delete_orphan_blobs(self, age_s: float) -> list[str]:
        """Delete the blobs of chats that have never come to be, or whose deletion was cut short, when nobody has put
        any there for so long; the ids of those chats.
        """
        before_s = now_ms() / 1000 - age_s
        unwanted = await asyncio.to_thread(self._blobs.unwanted_since, before_s)
        chats = set(await self.all()) if unwanted else set[str]()
        orphans = [chat_id for chat_id in unwanted if chat_id not in chats]
        return [found for found in orphans if await asyncio.to_thread(self._blobs.delete_unwanted, found, before_s)]

    def find_blob(self, chat_id: str, blob_id: str) -> Blob | None:
        with disk_errors(chat_id):
            return self._blobs.find(chat_id, blob_id)

    async def blobs(self, chat_id: str) -> list[Blob]:
        return await asyncio.to_thread(lambda: list(self._blobs.all(chat_id)))

    def share(self, news: str) -> None:
        """There are no others: the folder has one owner."""

    def listen(self, hear: Callable[[str], None]) -> None:
        """See share."""

    async def _opened(self, chat_id: str) -> Chat:
        """The one object of a chat, new where it has no log."""
        chat = self._open.get(chat_id)
        if chat is None and self._is_new(chat_id):
            chat = self._open[chat_id] = Chat.empty(chat_id)
        if chat is None:
            async with self._loading:
                chat = self._open.get(chat_id) or await asyncio.to_thread(loaded, self._disk, chat_id)
                self._open[chat_id] = chat
        return chat

    def _is_new(self, chat_id: str) -> bool:
        with disk_errors(chat_id):
            return not self._disk.has(chat_id)

    def _copy(self, source: str, target: str, cut: log_copy.Cut) -> Change:
        with disk_errors(target):
            self._blobs.copy(source, target)
        return self._write_new(target, cut.copy(source, target))

    def _write_new(self, chat_id: str, log: bytes) -> Change:
        with disk_errors(chat_id):
            if chat_id in self._disk.logs():
                raise InvalidRequest.of("chatId", f"chat {chat_id} exists already")
            mtime_ns = self._disk.append(chat_id, 0, log)
        return whole(chat_of(chat_id, log), mtime_ns)

    def _keep(self, chat: Chat) -> None:
        """Keep the chat in memory as one of the last used."""
        if not chat.is_deleted:
            self._hot.keep(chat.chat_id, chat, chat.size_bytes)


async def _indexed(disk: Disk) -> Database:
    """See opening.indexed, which may take minutes: a stop in the meantime is obeyed."""
    stopped = threading.Event()
    indexing = asyncio.create_task(asyncio.to_thread(indexed, disk, stopped))
    try:
        return await asyncio.shield(indexing)
    except asyncio.CancelledError:
        stopped.set()
        (await indexing).close()
        raise


@asynccontextmanager
async def opened(
    disk: Disk, *, hot_bytes_max: int = HOT_BYTES_MAX, clock: Callable[[], int] = now_ms
) -> AsyncGenerator[Store]:
    """The chats of `disk`, with the tasks that write them; leaving the block commits what waits.

    `clock` tells when leases end, in Unix milliseconds.
    """
    database = await _indexed(disk)
    held = {run_id: Lease(*lease) for run_id, lease in database.leases().items()}
    index = Index(database, lambda chat_id: entry(disk, chat_id))
    leases = Leases(index, held, database.floor(), clock)
    commits = Commits(disk, index, leases)
    facts = await asyncio.to_thread(Facts, disk.folder / "facts")
    writing, indexing = asyncio.create_task(commits.run()), asyncio.create_task(index.run())
    try:
        await index.ask(lambda database: database.remember_all([text_of(fact) for fact in facts.all()]))
        yield Store(disk, index, commits, leases, facts, hot_bytes_max)
    finally:
        commits.close()
        await writing
        index.close()
        await indexing
        facts.close()
