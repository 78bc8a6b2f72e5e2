"""Logs that are not indexed yet; a request for one of these chats indexes its log first.

Nothing else opens such a log, so that it is repaired, and counted, only once. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any, TypeAlias

import structlog
from prometheus_client import Gauge

from headrace.errors import HeadraceError
from services.memory.storage.index_rows import IndexProgress
from services.runtime.clock import monotonic_s

DAY_MS = 24 * 3_600_000

LogState = tuple[int, int]
"""A log's length and modification time (ns)."""

STEP_LOGS_MAX, STEP_BYTES_MAX = 100, 512 * 1024
"""Maximum logs and bytes indexed at a time; reads wait that long for the index's thread."""

_WAITING = Gauge("headrace_index_chats_waiting", "Chats whose logs the index has not taken in yet; lists lack them.")


class Backlog:
    def __init__(self, logs: Mapping[str, LogState], take: Callable[[Sequence[str]], Awaitable[float]]) -> None:
        """`logs` are by chat, in the order to index them; `take` writes the rows of whole logs and returns the CPU
        seconds used."""
        self._logs = dict(logs)
        self._taken: dict[str, asyncio.Future[float]] = {}
        self._take = take
        self._count = len(logs)
        self._emptied = asyncio.Event()
        self._note_size()

    def get_progress(self) -> IndexProgress | None:
        """Return the index's progress; None: it is complete."""
        return IndexProgress(self._count - len(self._logs), self._count) if self._logs else None

    def check_empty(self, wanted: str) -> None:
        """Raise IndexIncomplete if `wanted` may be in a log that is not indexed yet."""
        if (progress := self.get_progress()) is not None:
            raise progress.make_error(wanted)

    def check_since(self, at_ms: int, wanted: str) -> None:
        """Raise IndexIncomplete if an unindexed log may have lines of `at_ms` or later: it changed since then, or the
        day before, because clocks differ."""
        progress = self.get_progress()
        if progress is not None and max(mtime_ns for _, mtime_ns in self._logs.values()) // 1_000_000 >= at_ms - DAY_MS:
            raise progress.make_error(wanted)

    async def wait_until_empty(self) -> None:
        await self._emptied.wait()

    async def take_in(self, chat_id: str) -> bool:
        """Index a log now; return False if it already is."""
        if chat_id not in self._logs:
            return False
        if (taken := self._taken.get(chat_id)) is None:
            await self._take_some([chat_id])
        else:
            await asyncio.shield(taken)
        return True

    async def take_step(self) -> float:
        """Index the next logs, if any; return the CPU seconds used."""
        if step := list(self._choose_step()):
            return await self._take_some(step)
        await self.wait_for_taken()  # each is a caller's
        return 0.0

    async def wait_for_taken(self) -> None:
        """Wait until the logs now being indexed are done."""
        if self._taken:
            await asyncio.wait(set(self._taken.values()))

    async def _take_some(self, chat_ids: Sequence[str]) -> float:
        # A separate task, so that a caller who disconnects does not affect others that wait.
        taken = asyncio.ensure_future(self._take(chat_ids))
        self._taken |= dict.fromkeys(chat_ids, taken)
        taken.add_done_callback(lambda _: self._forget_logs(chat_ids))
        return await asyncio.shield(taken)

    def _forget_logs(self, chat_ids: Sequence[str]) -> None:
        for chat_id in chat_ids:
            del self._logs[chat_id], self._taken[chat_id]
        self._note_size()

    def _note_size(self) -> None:
        _WAITING.set(len(self._logs))
        if not self._logs:
            self._emptied.set()

    def _choose_step(self) -> Iterator[str]:
        size_bytes = 0
        free = ((chat_id, state) for chat_id, state in self._logs.items() if chat_id not in self._taken)
        for count, (chat_id, (log_bytes, _)) in enumerate(islice(free, STEP_LOGS_MAX)):
            size_bytes += log_bytes
            if count and size_bytes > STEP_BYTES_MAX:
                return
            yield chat_id


REPORT_EVERY_S = 5.0

SWITCH_S = 0.0005
"""How long another thread of this process waits for the interpreter during that time; short, because deltas must be
passed on."""

BUSY_SHARE = 0.1
"""Share of a core at which the rest of the process counts as busy..."""

BUSY_PAUSE = 3.0
"""... and the pause it then gets, as a multiple of the step before."""

RETRY_S = 1.0
"""Pause while the index cannot be written."""

RunBacklog: TypeAlias = "Callable[[Backlog, Callable[[], bool], Flush], Coroutine[Any, Any, None]]"

Flush: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


async def run_steps(backlog: Backlog, is_behind: Callable[[], bool], flush: Flush) -> None:
    """Index all of `backlog`; while the disk refuses index writes (`is_behind`), only `flush` is retried."""
    if (progress := backlog.get_progress()) is None:
        return
    begun_s = told_s = monotonic_s()
    count = progress.chats
    log.warning("indexing", chats_done=0, chats=count)
    with _switching_soon():
        while (progress := backlog.get_progress()) is not None:
            if (now_s := monotonic_s()) - told_s > REPORT_EVERY_S:
                log.warning("indexing", chats_done=progress.chats_done, chats=count)
                told_s = now_s
            pause_s = await _take_step(backlog)
            while is_behind():
                await asyncio.sleep(RETRY_S)
                with suppress(HeadraceError):
                    await flush()
            await asyncio.sleep(pause_s)
    log.warning("index complete", chats=count, took_s=round(monotonic_s() - begun_s, 1))


async def _take_step(backlog: Backlog) -> float:
    """Take a step; return the seconds to pause after it, above 0 if the rest of the process is busy."""
    began_s, began_cpu_s = monotonic_s(), time.process_time()
    used_s = await backlog.take_step()
    step_s = monotonic_s() - began_s
    others_s = time.process_time() - began_cpu_s - used_s
    return step_s * BUSY_PAUSE if others_s > step_s * BUSY_SHARE else 0.0


@contextmanager
def _switching_soon() -> Generator[None]:
    before_s = sys.getswitchinterval()
    sys.setswitchinterval(min(before_s, SWITCH_S))
    try:
        yield
    finally:
        sys.setswitchinterval(before_s)
