"""Group commit: appends that wait while the disk is busy are written together, with one write and one sync per file.

One task makes all changes, in rounds, and responds once they are on disk.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeAlias

import structlog

from headrace.errors import HeadraceError, LogDamaged, Overloaded
from services.memory.encryption.envelope import WrongCiphertext, is_encrypted
from services.memory.encryption.keyring import NO_KEYS, Keyring
from services.memory.log.chat import Chat, Span, chat_not_found
from services.memory.log.chat_info import read_info
from services.memory.log.lines import Known, Query, Run
from services.memory.log.recovery import read_chat
from services.memory.log.sealing import (
    NO_LINK,
    decrypt_log,
    encode_lines,
    encrypt_log,
    find_link,
    is_current_log,
    name_older_log,
)
from services.memory.storage.engine import APPEND_COST_BYTES, WAITING_BYTES_MAX
from services.memory.storage.event_rows import NO_EVENTS
from services.memory.storage.files.disk import Disk, Piece, disk_errors
from services.memory.storage.index_rows import make_change, make_full_change
from services.memory.storage.spend import fold_spend
from services.runtime.auth.identity import get_identity
from services.runtime.files.disk import NO_ROOM

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from services.memory.storage.files.disk_room import DiskRoom
    from services.memory.storage.files.indexing.index import Index
    from services.memory.storage.files.indexing.spend import SpendLedger
    from services.memory.storage.files.leases import LeaseTable
    from services.memory.storage.leases import Lease
    from services.memory.storage.spend import SpendRow
    from services.runtime.auth.identity import Identity

SYNCS_MAX = 8
FILES_MIN = 16
"""Files that one thread syncs before another helps. 64 syncs took 2.5 ms in 8 threads, 7 ms in one (ext4, 2026-11), but
switching threads costs more CPU than a sync."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Append:
    chat: Chat
    lines: list[Known]
    done: asyncio.Future[Span | str]
    """The lines' numbers, or the id of the run that a repeated query began."""
    lease: Lease | None = None
    beside: Collection[str] | None = None
    """The other unfinished runs that its chat may have; None allows any."""
    writer: Identity | None = None
    """The writer, with roles; None: a service on its own account."""


@dataclass(frozen=True, slots=True)
class Delete:
    chat: Chat
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Rewrite:
    chat: Chat
    redact: Callable[[bytes], bytes]
    """Returns the log that replaces the given one."""
    done: asyncio.Future[None]


@dataclass(frozen=True, slots=True)
class Reencrypt:
    """Lines must be converted to their current form."""

    chat: Chat
    done: asyncio.Future[bool]
    """Whether the log has changed."""


@dataclass(frozen=True, slots=True)
class Flush:
    done: asyncio.Future[None]


Job: TypeAlias = Append | Delete | Rewrite | Reencrypt | Flush


@dataclass(slots=True, eq=False)
class _StagedChat:
    chat: Chat
    lines: list[Known] = field(default_factory=list[Known])
    appends: list[tuple[Append, Span | str]] = field(default_factory=list[tuple[Append, "Span | str"]])
    deletes: list[Delete] = field(default_factory=list[Delete])
    rewrites: list[Rewrite] = field(default_factory=list[Rewrite])
    reencryptions: list[Reencrypt] = field(default_factory=list[Reencrypt])
    refused: list[tuple[Append | Delete | Rewrite | Reencrypt, HeadraceError]] = field(
        default_factory=list[tuple["Append | Delete | Rewrite | Reencrypt", HeadraceError]]
    )
    """Refusals because of lines in this write, sent only once those are stored."""
    end: int = 0
    link: bytes = NO_LINK

    def encode_lines(self, keys: Keyring) -> Piece:
        for line in self.lines[1:]:
            line.batch = self.lines[0].n
        tenant = self.chat.info.owner.tenant
        texts, self.link = encode_lines(self.lines, keys, tenant, self.chat.link)
        data = b"".join(text + b"\n" for text in texts)
        self.end = self.chat.size_bytes + len(data)
        return Piece(self.chat.chat_id, self.chat.size_bytes, data)


class Commits:
    """The only writer of all logs; `run_commits` must run as a task."""

    def __init__(
        self,
        disk: Disk,
        room: DiskRoom,
        index: Index,
        leases: LeaseTable,
        ledger: SpendLedger,
        keys: Keyring = NO_KEYS,
    ) -> None:
        self._disk = disk
        self._keys = keys
        self._ledger = ledger
        self._room = room
        self._index = index
        self._leases = leases
        self._waiting: list[Job] = []
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._is_closed = False

    async def append_lines(
        self,
        chat: Chat,
        lines: list[Known],
        size_bytes: int,
        lease: Lease | None = None,
        beside: Collection[str] | None = None,
    ) -> Span | str:
        """Commit `lines`, even if the caller leaves; see ChatLogs.append. After a HeadraceError nothing was
        appended."""
        if isinstance(lines[0], Query):
            self._room.check()  # a run that has started may still fit, and should be able to end
        cost_bytes = size_bytes + APPEND_COST_BYTES
        if self._waiting and self._waiting_bytes + cost_bytes > WAITING_BYTES_MAX:
            raise Overloaded("too many appends wait for the disk; try again later", waitingBytes=self._waiting_bytes)
        job = Append(chat, lines, asyncio.get_running_loop().create_future(), lease, beside, get_identity())
        self._waiting_bytes += cost_bytes
        self._enqueue(job)
        return await job.done

    async def flush(self) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._enqueue(Flush(done))
        await done

    async def delete_chat(self, chat: Chat) -> None:
        """Delete the chat's log.

        Raises:
            ChatBusy: One of its runs is unfinished.
            HeadraceError: The disk refused.
        """
        job = Delete(chat, asyncio.get_running_loop().create_future())
        self._enqueue(job)
        await job.done

    async def delete_unread(self, chat_id: str, created_at: int, spend: Collection[SpendRow]) -> None:
        """Delete the log of a chat that is not open and cannot be opened; `spend` is its spending."""
        with self._room.noting(), disk_errors(chat_id):
            await asyncio.to_thread(self._delete_log, chat_id, created_at, spend)
        self._index.remove_chat(chat_id)

    async def rewrite_chat(self, chat: Chat, redact: Callable[[bytes], bytes]) -> None:
        """Replace the chat's log by the result of `redact`, which is called in a thread.

        Raises:
            ChatBusy: One of its runs is unfinished.
            HeadraceError: The disk refused.
        """
        job = Rewrite(chat, redact, asyncio.get_running_loop().create_future())
        self._enqueue(job)
        await job.done

    async def reencrypt_chat(self, chat: Chat) -> bool:
        """Convert the lines of the chat's log to their current form; return whether it has changed. Load its key first.

        Raises:
            HeadraceError: The disk refused, or a key is unavailable; the log is unchanged.
        """
        job = Reencrypt(chat, asyncio.get_running_loop().create_future())
        self._enqueue(job)
        return await job.done

    def close(self) -> None:
        self._is_closed = True
        self._wake.set()

    async def run_commits(self) -> None:
        with ThreadPoolExecutor(SYNCS_MAX, "commit") as threads:
            while self._waiting or not self._is_closed:
                await self._wake.wait()
                self._wake.clear()
                jobs, self._waiting, self._waiting_bytes = self._waiting, [], 0
                staged = self._stage_jobs(jobs)
                count = min(SYNCS_MAX, -(-len(staged) // FILES_MIN))
                async with asyncio.TaskGroup() as group:
                    for first in range(count):
                        group.create_task(self._commit_batch(staged[first::count], threads))
                for job in jobs:
                    if isinstance(job, Flush):
                        _answer_job(job.done, None)
                await self._index.wait_for_room()

    def _enqueue(self, job: Job) -> None:
        self._waiting.append(job)
        self._wake.set()

    def _stage_jobs(self, jobs: list[Job]) -> list[_StagedChat]:
        # By chat, not by id: a deleted chat may still get requests along with the new one of the same id.
        staged: dict[Chat, _StagedChat] = {}
        for job in jobs:
            if isinstance(job, Flush):
                continue
            item = staged.setdefault(job.chat, _StagedChat(job.chat))
            try:
                if isinstance(job, Append):
                    item.appends.append((job, self._admit_append(job, item)))
                elif isinstance(job, Rewrite):
                    item.rewrites.append(job)
                elif isinstance(job, Reencrypt):
                    item.reencryptions.append(job)
                else:
                    job.chat.check_delete()
                    job.chat.is_deleted = True
                    item.deletes.append(job)
            except HeadraceError as error:
                if item.lines:
                    item.refused.append((job, error))
                else:
                    _refuse_job(job, error)
            except Exception as error:
                log.exception("append failed", chat_id=job.chat.chat_id)
                _refuse_job(job, error)
        return list(staged.values())

    def _admit_append(self, job: Append, item: _StagedChat) -> Span | str:
        first = job.lines[0]
        answer = job.chat.admit(job.lines, self._leases.get_generation(first.run_id), job.beside, job.writer)
        if first.n:
            item.lines += job.lines
            if job.lease is not None and isinstance(first, Query):
                # Before any list contains the run: a search for runs without an owner must not find it.
                self._leases.add_first(first.run_id, job.lease)
        return answer

    async def _commit_batch(self, batch: list[_StagedChat], threads: ThreadPoolExecutor) -> None:
        loop = asyncio.get_running_loop()
        items = [item for item in batch if item.lines]
        outcomes: Sequence[int | Exception] = []
        try:
            pieces = [item.encode_lines(self._keys) for item in items]
            if pieces:
                outcomes = await loop.run_in_executor(threads, self._disk.append_each, pieces)
        except Exception as error:
            outcomes = [error] * len(items)
        by_item = dict(zip(items, outcomes, strict=True))
        for item in batch:
            await self._finish_chat(item, by_item.get(item, 0), threads)

    async def _finish_chat(self, item: _StagedChat, outcome: int | Exception, threads: ThreadPoolExecutor) -> None:
        """Apply the lines written for one chat, and respond. `outcome` is the file's modification time, or the
        error."""
        try:
            if isinstance(outcome, Exception):
                with self._room.noting(), disk_errors(item.chat.chat_id):
                    raise outcome
            if item.lines:
                self._apply_lines(item, outcome)
            for job, answer in item.appends:
                _answer_job(job.done, answer)
            for job, error in item.refused:
                _refuse_job(job, error)
            # After the lines of the same round, which are then in the log.
            for job in item.rewrites:
                await self._rewrite_log(job, threads)
            for job in item.reencryptions:
                # Its error concerns only itself: lines appended with it are stored.
                try:
                    _answer_job(job.done, await self._reencrypt_chat(job.chat, threads))
                except (HeadraceError, WrongCiphertext) as error:
                    _refuse_job(job, error)
            if item.deletes:
                chat_id = item.chat.chat_id
                with disk_errors(chat_id):
                    await asyncio.get_running_loop().run_in_executor(threads, self._delete_chat_log, item.chat)
                self._index.remove_chat(chat_id)
            for job in item.deletes:
                _answer_job(job.done, None)
        except HeadraceError as error:
            log.error("not stored", chat_id=item.chat.chat_id, error=error.message)
            self._roll_back(item, error)
        except Exception as error:
            log.exception("commit failed", chat_id=item.chat.chat_id)
            self._roll_back(item, error)

    async def _rewrite_log(self, job: Rewrite, threads: ThreadPoolExecutor) -> None:
        chat = job.chat

        def rewrite() -> tuple[Chat, int]:
            plain = decrypt_log(chat.chat_id, self._disk.read_log(chat.chat_id)[: chat.size_bytes], self._keys)
            log = encrypt_log(chat.chat_id, job.redact(plain), self._keys, chat.info.owner.tenant)
            self._disk.rewrite_log(chat.chat_id, log)
            return read_chat(chat.chat_id, log, self._keys), self._disk.get_mtime_ns(chat.chat_id)

        try:
            if chat.is_deleted:
                raise chat_not_found(chat.chat_id)
            chat.check_idle()
            with self._room.noting(), disk_errors(chat.chat_id):
                rewritten, mtime_ns = await asyncio.get_running_loop().run_in_executor(threads, rewrite)
        except HeadraceError as error:
            _refuse_job(job, error)
            return
        chat.reload(rewritten.log, rewritten.size_bytes)
        chat.link = rewritten.link
        # Its events have been reported already.
        self._index.put_change(replace(make_full_change(chat, mtime_ns), events=NO_EVENTS))
        _answer_job(job.done, None)

    async def _reencrypt_chat(self, chat: Chat, threads: ThreadPoolExecutor) -> bool:
        if chat.is_deleted or not chat.info.last_n:
            return False
        with self._room.noting(), disk_errors(chat.chat_id):
            written = await asyncio.get_running_loop().run_in_executor(threads, self._reencrypt_log, chat)
        if written is None:
            return False
        chat.size_bytes, chat.link, mtime_ns = written
        # Its events have been reported already.
        self._index.put_change(replace(make_full_change(chat, mtime_ns), events=NO_EVENTS))
        return True

    def _reencrypt_log(self, chat: Chat) -> tuple[int, bytes, int] | None:
        """Return length, link and modification time of the new file; None if nothing must be written."""
        chat_id, tenant = chat.chat_id, chat.info.owner.tenant
        before = self._disk.read_log(chat_id)[: chat.size_bytes]
        older = self._disk.read_older(chat_id)
        if older is not None and not self._keys.is_current(tenant, older):
            name = name_older_log(chat_id)
            plain = self._keys.decrypt(name, older) if is_encrypted(older) else older
            self._disk.write_older(chat_id, self._keys.encrypt(tenant, name, plain) if self._keys.encrypts else plain)
        if is_current_log(before, self._keys, tenant):
            return None
        after = encrypt_log(chat_id, decrypt_log(chat_id, before, self._keys), self._keys, tenant)
        if after == before:
            return None
        self._disk.rewrite_log(chat_id, after)
        return len(after), find_link(chat_id, after, self._keys), self._disk.get_mtime_ns(chat_id)

    def _delete_chat_log(self, chat: Chat) -> None:
        self._delete_log(chat.chat_id, chat.info.created_at, fold_spend(chat.info, chat.log))

    def _delete_log(self, chat_id: str, created_at: int, spend: Collection[SpendRow]) -> None:
        try:
            self._ledger.add_chat(chat_id, created_at, spend)
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
            # A deletion frees space; without this line, only a rebuilt index will lack the chat's spending.
            log.warning("cost of a deleted chat not stored", chat_id=chat_id)
        self._disk.delete_log(chat_id)

    def _apply_lines(self, item: _StagedChat, mtime_ns: int) -> None:
        item.chat.size_bytes, item.chat.link = item.end, item.link
        item.chat.commit_lines(item.lines)
        leases = {
            line.run_id: lease
            for line in item.lines
            if isinstance(line, Query) and (lease := self._leases.find_first(line.run_id))
        }
        change = make_change(item.chat, item.lines, mtime_ns)
        self._index.put_change(replace(change, leases=leases) if leases else change)
        self._leases.drop_runs(line.run_id for line in item.lines if isinstance(line, Run))

    def _roll_back(self, item: _StagedChat, error: Exception) -> None:
        # The staged lines are not in the file, or the file takes no more writes.
        chat = item.chat
        is_damaged = chat.info.is_damaged or isinstance(error, LogDamaged)
        chat.info = read_info(chat.chat_id, chat.log, is_damaged=is_damaged)
        chat.appends = {key: span for key, span in chat.appends.items() if span.last_n <= chat.info.last_n}
        chat.is_deleted = False
        self._leases.drop_runs(line.run_id for line in item.lines if isinstance(line, Query))
        if is_damaged and chat.info.last_n:
            self._index.put_change(make_full_change(chat, 0))
        for job in (
            *(job for job, _ in (*item.appends, *item.refused)),
            *item.deletes,
            *item.rewrites,
            *item.reencryptions,
        ):
            _refuse_job(job, error)


def _answer_job(
    done: asyncio.Future[Span | str] | asyncio.Future[None] | asyncio.Future[bool], answer: Span | str | bool | None
) -> None:
    if not done.done():  # its caller may have left
        done.set_result(answer)  # pyright: ignore[reportArgumentType] - each job is answered in its own kind


def _refuse_job(job: Append | Delete | Rewrite | Reencrypt, error: Exception) -> None:
    if not job.done.done():
        job.done.set_exception(error)
