"""The index of all chats, written by one thread after the logs.

A read waits for earlier changes, so that it sees every acknowledged append; only a run's chat is known immediately.
Changes that the file refuses are later read again from the logs.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from typing import Any, TypeVar

import structlog

from headrace.errors import KeyUnavailable, LogDamaged, Overloaded
from services.memory.log.chat import chat_not_found
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.encrypted.text_search import PAGE_TEXTS, TEXTS_MAX, EncryptedSearch
from services.memory.storage.files.backlog import DAY_MS, Backlog, LogState
from services.memory.storage.files.disk_room import DiskRoom
from services.memory.storage.files.indexing.database import PLAIN_ROWS, IndexDatabase
from services.memory.storage.files.outbox import Outbox
from services.memory.storage.files.sqlite import database_errors
from services.memory.storage.gates.query import GateQuery, GrantQuery, read_gate_chats
from services.memory.storage.gates.rows import GateChange, GateEntry, GrantEntry
from services.memory.storage.gates.watch import GateKey, GateWatch
from services.memory.storage.index_rows import ChatEntry, IndexChange, IndexProgress, UnfinishedEntry
from services.memory.storage.paging import Page
from services.memory.storage.reservations import BudgetUse, SpendDecision, SpendReservation
from services.memory.storage.run_query import RunEntry, RunQuery
from services.memory.storage.search import Hit, Question, search_texts
from services.memory.storage.spend import SpendAnswer, SpendQuery
from services.memory.storage.where import Place
from services.runtime.auth.identity import Identity
from services.runtime.clock import now_ms, thread_time_s
from services.runtime.files.disk import disk_errors

T = TypeVar("T")

WAITING_MAX = 4096
"""Maximum pending changes; beyond it commits wait as well, or memory would fill up."""

PREVIEW_MAX = 100
"""Maximum chats that a read takes from their logs while the disk has no room for the index; each costs about a
millisecond."""

GATHER_S = 0.25
"""How long changes are collected for one write; a read does not wait for it. A text costs 80 µs in a batch of a
hundred, 140 in one of ten, 600 alone (400 characters, 2026-11)."""

log = structlog.get_logger()


class Index:
    """The rows of all chats, used on the event loop only; `run_writes` must run as a task."""

    def __init__(
        self,
        database: IndexDatabase,
        reader: IndexDatabase,
        read: Callable[[str], IndexChange | str],
        room: DiskRoom,
        clock: Callable[[], int] = now_ms,
        outbox: Outbox | None = None,
        gate_watch: GateWatch | None = None,
        backlog: Mapping[str, LogState] | None = None,
        read_new: Callable[[Iterable[str]], Generator[IndexChange]] | None = None,
        rows: RowCipher = PLAIN_ROWS,
    ) -> None:
        """Take over `database` and `reader`. `read` returns a chat's log as a change, in the index's thread. `outbox`
        receives the events of changes before the index does, and `gate_watch` is notified of their gates. `read_new`
        reads the logs of `backlog`, which the file lacks and no task has opened. `rows` must be those of the
        databases."""
        self._database = database
        self._disk_room = room
        self._read = read
        self._clock = clock
        self._outbox = outbox
        self._gate_watch = gate_watch
        self._thread = ThreadPoolExecutor(1, "index")
        self._reader = reader
        self._waiting: list[IndexChange | str] = []
        self._unwritten: dict[str, str] = {}
        """Chats of runs that are not in the file yet, by run."""
        self._removals = 0
        self._behind: set[str] = set()
        """Chats with refused changes, modified only in the thread."""
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._closed = asyncio.Event()
        self._read_new = read_new
        self._keys, self._rows = rows.keys, rows
        self.backlog = Backlog(backlog or {}, self._take_in)

    def put_change(self, change: IndexChange) -> None:
        self._unwritten |= dict.fromkeys((run.run_id for run in change.runs), change.chat.chat_id)
        self._enqueue(change)
        if self._gate_watch is not None:
            self._gate_watch.report_change(change.gates)

    def remove_chat(self, chat_id: str) -> None:
        self._removals += 1
        self._enqueue(chat_id)

    async def wait_for_room(self) -> None:
        while len(self._waiting) > WAITING_MAX:
            self._room.clear()
            await self._room.wait()

    async def run_writes(self) -> None:
        try:
            while self._waiting or not self._closed.is_set():
                await self._wake.wait()
                self._wake.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(GATHER_S):
                        await self._closed.wait()
                await self._write_waiting()
                self._room.set()
        finally:
            self._thread.shutdown()
            self._reader.close()
            self._database.close()

    def close(self) -> None:
        self._closed.set()
        self._wake.set()

    def is_behind(self) -> bool:
        """Return whether refused changes wait to be read again."""
        return bool(self._behind)

    async def flush(self) -> None:
        """Return when all earlier commits are in the file. Raises Overloaded."""
        await self.query_file(lambda _: None)

    def get_progress(self) -> IndexProgress | None:
        return self.backlog.get_progress()

    async def wait_until_complete(self) -> None:
        await self.backlog.wait_until_empty()

    async def query_file(self, question: Callable[[IndexDatabase], T]) -> T:
        """Return the result of `question`, with all earlier commits applied.

        Raises:
            Overloaded: The file cannot be used now.
        """
        # Independent of the question, which may be cancelled with its caller; commits must still be written.
        self._write_waiting()
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run_query, question, self._database)

    async def change_file(self, change: Callable[[IndexDatabase], None]) -> None:
        """Make a change that is in no log; on disk on return, or refused like query_file."""
        self._write_waiting()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._run_change, change)

    @contextmanager
    def _guarding_file(self) -> Generator[None]:
        with self._disk_room.noting(), database_errors("the index of the chats"):
            yield

    def _run_query(self, question: Callable[[IndexDatabase], T], database: IndexDatabase) -> T:
        with self._guarding_file():
            if not self._behind:
                return question(database)
            if not self._disk_room.is_full or len(self._behind) > PREVIEW_MAX:
                raise _make_behind_error()
            with disk_errors("a log of a chat", ""), database.previewing(self._read_behind()):
                return question(database)

    def _run_change(self, change: Callable[[IndexDatabase], None]) -> None:
        if self._behind:
            raise _make_behind_error()
        with self._guarding_file():
            change(self._database)

    async def find_entry(self, chat_id: str) -> ChatEntry:
        await self.backlog.take_in(chat_id)
        entry = await self.query_file(lambda database: database.find_chat(chat_id))
        if entry is None:
            raise chat_not_found(chat_id)
        return entry

    async def find_row(self, chat_id: str) -> ChatEntry:
        await self.backlog.take_in(chat_id)
        row = await self.query_file(lambda database: database.find_row(chat_id))
        if row is None:
            raise chat_not_found(chat_id)
        return row

    async def list_rows(
        self, who: Identity, page: Page, *, is_shared: bool = False
    ) -> tuple[list[ChatEntry], Place | None]:
        return await self.query_file(lambda database: database.list_rows(who, page, is_shared=is_shared))

    async def find_run_user(self, run_id: str) -> Identity | None:
        return await self.query_file(lambda database: database.find_run_user(run_id))

    async def find_chat_of_run(self, run_id: str) -> str | None:
        chat_id = await self.find_known_chat_of_run(run_id)
        if chat_id is None:
            self.backlog.check_empty("the chat of the run")
        return chat_id

    async def find_known_chat_of_run(self, run_id: str) -> str | None:
        """Return the run's chat; None if its log is not indexed yet."""

        def find(database: IndexDatabase) -> str | None:
            return database.find_chat_of_run(run_id)

        if self._removals or self._behind:
            return await self.query_file(find)
        if (chat_id := self._unwritten.get(run_id)) is not None:
            return chat_id
        try:
            # One row by its key, some 10 µs: a hop to a thread takes a hundred, and every new run is held against this.
            return self._run_query(find, self._reader)
        except Overloaded:  # the file is locked for a moment
            return await self.query_file(find)

    async def list_unfinished(
        self, chat_id: str | None = None, *, without_owner: bool = False, may_lag: bool = False
    ) -> list[UnfinishedEntry]:
        if chat_id is not None:
            await self.backlog.take_in(chat_id)
        now = self._clock()
        expired_at = now if without_owner else None
        return await self.query_file(lambda database: database.list_unfinished(now, chat_id, expired_at))

    async def list_runs(self, query: RunQuery) -> tuple[list[RunEntry], Place | None]:
        return await self.query_file(lambda database: database.list_runs(query))

    async def list_page(
        self, who: Identity, page: Page, *, is_shared: bool = False
    ) -> tuple[list[ChatEntry], Place | None]:
        await self._keys.open_tenant(who.tenant)
        return await self.query_file(lambda database: database.list_page(who, page, is_shared=is_shared))

    async def list_chats(self) -> list[str]:
        self.backlog.check_empty("the list of all chats")
        return sorted(await self.query_file(lambda database: database.list_logs()))

    async def list_unchanged(self, updated_at: int, after: tuple[int, str] | None) -> list[ChatEntry]:
        self.backlog.check_empty("which chats are unused")
        return await self.query_file(lambda database: database.list_unchanged(updated_at, after))

    async def find_gate(self, tenant: str, run_id: str, gate_id: str) -> GateEntry | None:
        await self._keys.open_tenant(tenant)
        await self.backlog.take_in(await self.find_chat_of_run(run_id) or "")
        return await self.query_file(lambda database: database.gates.find_gate(tenant, run_id, gate_id))

    async def list_gates(self, query: GateQuery) -> tuple[list[GateEntry], Place | None]:
        await self._keys.open_tenant(query.tenant)
        return await self.query_file(lambda database: database.gates.list_gates(query))

    async def find_gates(self, keys: Collection[GateKey]) -> list[GateEntry]:
        return await self.query_file(lambda database: database.gates.find_gates(keys))

    async def list_gate_chats(self, tenant: str, since: int) -> list[str]:
        self.backlog.check_since(since, "which chats have had gates")

        async def read(after: str) -> list[tuple[str, int]]:
            return await self.query_file(lambda database: database.gates.list_chats(tenant, after))

        return await read_gate_chats(read, since)

    async def list_grants(self, query: GrantQuery) -> tuple[list[GrantEntry], Place | None]:
        await self._keys.open_tenant(query.tenant)
        return await self.query_file(lambda database: database.gates.list_grants(query))

    async def sum_spend(self, query: SpendQuery) -> SpendAnswer:
        self.backlog.check_since(query.first_day * DAY_MS, "what was spent")
        return await self.query_file(lambda database: database.spend.sum_spend(query))

    async def reserve_spend(self, reservation: SpendReservation) -> SpendDecision | None:
        first_day = min((budget.first_day for budget in reservation.budgets), default=None)
        if first_day is not None:
            self.backlog.check_since(first_day * DAY_MS, "what the budgets have left")
        return await self.query_file(lambda database: database.reserve_spend(reservation))

    async def measure_uses(self, reservation: SpendReservation) -> list[BudgetUse]:
        return await self.query_file(lambda database: database.measure_uses(reservation))

    async def search(self, owner: Identity, question: Question) -> list[Hit]:
        if self._keys.encrypts:
            return await self._search_encrypted(owner, question)

        async def fetch(statement: str, values: list[Any]) -> list[Any]:
            return await self.query_file(lambda database: database.fetch(statement, values))

        return await search_texts(fetch, owner, question, "chat_id", "USING (chat_id)")

    async def _search_encrypted(self, owner: Identity, question: Question) -> list[Hit]:
        await self._keys.open_tenant(owner.tenant)
        search, before = EncryptedSearch(question, self._rows), sys.maxsize
        for _ in range(TEXTS_MAX // PAGE_TEXTS):
            rows = await self.query_file(
                lambda database, before=before: database.list_encrypted_texts(owner, question.kinds, before, PAGE_TEXTS)
            )
            await asyncio.to_thread(search.add_rows, rows)
            if len(rows) < PAGE_TEXTS:
                break
            before = rows[-1].place
        return await asyncio.to_thread(search.list_hits)

    def _enqueue(self, change: IndexChange | str) -> None:
        self._waiting.append(change)
        self._wake.set()

    def _write_waiting(self) -> asyncio.Future[None]:
        changes, self._waiting = self._waiting, []
        written = asyncio.get_running_loop().run_in_executor(self._thread, self._apply_changes, changes)
        written.add_done_callback(lambda _: self._note_written(changes))
        return written

    def _note_written(self, changes: list[IndexChange | str]) -> None:
        for change in changes:
            if isinstance(change, str):
                self._removals -= 1
            else:
                for run in change.runs:
                    self._unwritten.pop(run.run_id, None)

    def _apply_changes(self, changes: list[IndexChange | str]) -> None:
        if not changes and (not self._behind or self._disk_room.is_full):
            return
        try:
            with self._guarding_file():
                self._store_changes(itertools.chain(changes, self._read_behind()))
            self._behind.clear()
        except Exception:
            # The appends are acknowledged, so whatever failed, the changes are read from the logs again.
            log.exception("index not written", changes=len(changes))
            self._behind |= {change if isinstance(change, str) else change.chat.chat_id for change in changes}

    def _read_behind(self) -> Iterator[IndexChange | str]:
        for chat_id in sorted(self._behind):
            try:
                yield self._read(chat_id)
            except (KeyUnavailable, LogDamaged) as error:  # one tenant's: the others' rows are not to wait for it
                log.error("log cannot be read", chat_id=chat_id, error=error.message)

    async def _take_in(self, chat_ids: Sequence[str]) -> float:
        """Write the rows of whole logs and return the CPU seconds used; rows that the file refuses are read again
        later."""
        loop = asyncio.get_running_loop()
        gates, used_s = await loop.run_in_executor(self._thread, self._apply_logs, chat_ids)
        if self._gate_watch is not None:
            for change in gates:
                self._gate_watch.report_change(change)
        return used_s

    def _apply_logs(self, chat_ids: Sequence[str]) -> tuple[list[GateChange], float]:
        assert self._read_new is not None, "there is no backlog without it"
        began_s, gates = thread_time_s(), list[GateChange]()
        try:
            with self._guarding_file(), closing(self._read_new(chat_ids)) as changes:
                self._store_changes(_note_gates(changes, gates))
        except Exception:
            log.exception("logs not indexed", chats=len(chat_ids))
            self._behind |= set(chat_ids)
        return gates, thread_time_s() - began_s

    def _store_changes(self, changes: Iterable[IndexChange | str]) -> None:
        if self._outbox is None:
            self._database.apply_changes(changes)
            return
        with closing(self._outbox.record(changes)) as recorded:
            self._database.apply_changes(recorded)


def _note_gates(changes: Iterable[IndexChange], gates: list[GateChange]) -> Iterator[IndexChange]:
    for change in changes:
        gates.append(change.gates)
        yield change


def _make_behind_error() -> Overloaded:
    return Overloaded("the index lags behind the logs: the disk refuses it; try again later")
