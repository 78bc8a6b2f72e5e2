"""Chats in a database that several services write to; storage/engine.py says what each method does."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncGenerator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from services.memory.log.blobs import Blob, is_blob_id
from services.memory.log.chat import Chat, Span, check_chat, not_found
from services.memory.log.recovery import chat_of
from services.memory.storage import log_copy
from services.memory.storage.index_rows import ChatEntry, UnfinishedEntry, whole
from services.memory.storage.leases import Lease, now_ms
from services.memory.storage.lru import HOT_BYTES_MAX, Hot
from services.memory.storage.postgres import blobs as stored_blobs
from services.memory.storage.postgres import index, search
from services.memory.storage.postgres import user_facts as stored_facts
from services.memory.storage.postgres.appending import Appending
from services.memory.storage.postgres.cached_chat import Held
from services.memory.storage.postgres.connection.pool import Database, Limits, connected
from services.memory.storage.postgres.leases import Owners
from services.memory.storage.postgres.migrations import migrate
from services.memory.storage.postgres.notifications import Wakeups
from services.memory.storage.postgres.statements import store
from services.memory.storage.user_facts import Fact

if TYPE_CHECKING:
    from services.memory.log.lines import Known
    from services.memory.storage.paging import Page
    from services.memory.storage.postgres.connection.session import Connection
    from services.memory.storage.search import Hit, Question
    from services.runtime.auth.identity import Identity


class PostgresStore:
    """All chats of a database. Touched on the event loop only."""

    def __init__(self, database: Database, owners: Owners, wakeups: Wakeups, hot_bytes_max: int) -> None:
        self._database = database
        self._loop = asyncio.get_running_loop()
        self._owners = owners
        self._hot: Hot[Held] = Hot(hot_bytes_max)
        self.appending = Appending(database, self._held, self._changed)
        """Has a task, which is its owner's to run."""
        self.tell = wakeups.tell
        """Called with each chat that is changed here."""
        self._wakeups = wakeups

    @property
    def is_up(self) -> bool:
        return self._database.presence.is_up

    async def chat(self, chat_id: str) -> Chat:
        held = self._held(chat_id)
        async with held.lock:
            await self._database.run(held.read)
        self._keep(held)
        if not held.row:
            raise not_found(chat_id)
        return held.chat

    async def follow(self, chat_id: str) -> None:
        """Read what others have committed to a chat that is in use here."""
        held = self._hot.get(chat_id)
        if held is not None:
            async with held.lock:
                await self._database.run(held.read)
            self._keep(held)

    async def append(
        self,
        chat_id: str,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> tuple[Chat, Span | str]:
        run_id = lines[0].run_id
        if run_id and run_id not in self._held(chat_id).chat.facts.runs:
            check_chat(run_id, chat_id, await self.chat_of(run_id))
        return await self.appending.append(chat_id, lines, size_bytes, lease, beside)

    async def log(self, chat: Chat) -> bytes:
        query = "SELECT data FROM lines JOIN chats ON chats.id = lines.chat WHERE chat_id = $1 AND n <= $2 ORDER BY n"
        rows = await self._database.run(lambda connection: connection.fetch(query, chat.chat_id, len(chat.log)))
        return b"".join(row[0] + b"\n" for row in rows)

    async def entry(self, chat_id: str) -> ChatEntry:
        entry = await self._database.run(partial(index.entry, chat_id))
        if entry is None:
            raise not_found(chat_id)
        return entry

    async def page(self, owner: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        return page.cut(await self._database.run(partial(index.page, owner, page)))

    async def chat_of(self, run_id: str) -> str | None:
        return await self._database.run(partial(index.chat_of, run_id))

    async def unfinished(self, chat_id: str | None = None, *, without_owner: bool = False) -> list[UnfinishedEntry]:
        expired_at = self._owners.now() if without_owner else None
        return await self._database.run(partial(index.unfinished, chat_id, expired_at))

    async def all(self) -> list[str]:
        return await self._database.run(index.every)

    async def unchanged_since(self, updated_at: int) -> list[str]:
        return await self._database.run(partial(index.unchanged_since, updated_at))

    async def search(self, owner: Identity, question: Question) -> list[Hit]:
        return await self._database.run(partial(search.answer, owner, question))

    async def remember(self, owner: Identity, text: str, request_id: str) -> str:
        fact = Fact.new(owner, text, request_id)
        return await self._database.run(partial(stored_facts.remember, [fact]))

    async def facts(self) -> list[Fact]:
        return await self._database.run(stored_facts.every)

    async def take_in_facts(self, facts: Iterable[Fact]) -> None:
        await self._database.run(partial(stored_facts.remember, list(facts)))

    async def fork(self, chat_id: str, n: int) -> str:
        chat = await self.chat(chat_id)
        log_copy.check(chat, n)
        target, cut = str(uuid.uuid4()), log_copy.Cut(await self.log(chat), n, list(chat.facts.runs))
        log = await asyncio.to_thread(cut.copy, chat_id, target)

        async def make(connection: Connection) -> None:
            async with connection.transaction():
                await stored_blobs.copy(chat_id, target, connection)
                await _make(target, log, connection)

        await self._database.run(make)
        return target

    async def take_in(self, chat_id: str, log: bytes, blobs: Iterable[Blob]) -> None:
        await self.put_blobs(chat_id, blobs)

        async def make(connection: Connection) -> bool:
            async with connection.transaction():
                return await _make(chat_id, log, connection)

        if not await self._database.run(make):
            raise InvalidRequest.of("chatId", f"chat {chat_id} exists already")

    async def delete(self, chat_id: str) -> None:
        held = self._held(chat_id)

        async def delete(connection: Connection) -> None:
            async with connection.transaction():
                await held.lock_row(connection)
                held.chat.check_delete()
                await connection.execute("DELETE FROM chats WHERE id = $1", held.row)
                await stored_blobs.delete(chat_id, connection)

        async with held.lock:
            await self._database.run(delete)
        self._hot.let_go(chat_id)
        self.tell(chat_id)

    def first_lease(self, owner: str, ttl_ms: int) -> Lease:
        return self._owners.first(owner, ttl_ms)

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        held = self._held(chat_id)
        async with held.lock:
            lease = await self._database.run(partial(self._owners.acquire, held, run_id, owner, ttl_ms))
        self._keep(held)
        return lease

    async def renew(self, run_id: str, generation: int, ttl_ms: int) -> Lease:
        return await self._database.run(partial(self._owners.renew, run_id, generation, ttl_ms))

    async def release(self, run_id: str, generation: int) -> None:
        await self._database.run(partial(self._owners.release, run_id, generation))

    async def put_blobs(self, chat_id: str, blobs: Iterable[Blob]) -> None:
        for blob in blobs:
            await self._database.run(partial(stored_blobs.put, chat_id, blob))

    def find_blob(self, chat_id: str, blob_id: str) -> Blob | None:
        if not is_blob_id(blob_id):
            return None
        finding = self._database.run(partial(stored_blobs.find, chat_id, blob_id))
        return asyncio.run_coroutine_threadsafe(finding, self._loop).result()

    async def blobs(self, chat_id: str) -> list[Blob]:
        return await self._database.run(partial(stored_blobs.every, chat_id))

    async def delete_orphan_blobs(self, age_s: float) -> list[str]:
        return await self._database.run(partial(stored_blobs.delete_orphans, age_s))

    def share(self, news: str) -> None:
        self._wakeups.share(news)

    def listen(self, hear: Callable[[str], None]) -> None:
        self._wakeups.hear = hear

    def _held(self, chat_id: str) -> Held:
        """The chat as this process has it, used now."""
        held = self._hot.get(chat_id)
        if held is None:
            held = Held.nothing(chat_id)
            self._keep(held)
        return held

    def _keep(self, held: Held) -> None:
        self._hot.keep(held.chat.chat_id, held, held.chat.size_bytes)

    def _changed(self, held: Held) -> None:
        self._keep(held)
        self.tell(held.chat.chat_id)


async def _make(chat_id: str, log: bytes, connection: Connection) -> bool:
    """Make a chat of a log that holds valid lines alone; False when there is such a chat."""
    held = Held.nothing(chat_id)
    if not await held.make(connection):
        return False
    await held.lock_row(connection)
    chat = await asyncio.to_thread(chat_of, chat_id, log)
    numbered = list(enumerate(log.split(b"\n")[:-1], 1))
    # Higher than any generation that was given where the chat comes from.
    leases = {run.run_id: Lease("", now_ms(), 0) for run in chat.facts.unfinished()}
    return await store(connection, (held.row, held.version), numbered, whole(chat, 0), leases=leases)


@asynccontextmanager
async def opened(
    url: str,
    limits: Limits,
    *,
    hot_bytes_max: int = HOT_BYTES_MAX,
    clock: Callable[[], int] = now_ms,
) -> AsyncGenerator[PostgresStore]:
    """The chats of the database at `url`, whose tables are made where they are missing; leaving the block commits what
    waits. `clock` tells when leases end, in Unix milliseconds.

    Raises:
        OSError: The database cannot be had, or is of a later version.
    """
    async with connected(url, limits) as database:
        if not await database.run(migrate):
            raise OSError("the database is of a later version than this program: it is too old")
        wakeups = Wakeups(url, database.use)
        chats = PostgresStore(database, Owners(clock), wakeups, hot_bytes_max)
        writing, telling = asyncio.create_task(chats.appending.run()), asyncio.create_task(wakeups.run(chats.follow))
        try:
            yield chats
        finally:
            chats.appending.close()
            await writing
            telling.cancel()
            await asyncio.wait([telling])
