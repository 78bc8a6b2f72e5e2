"""Logs that the index does not have yet: whoever asks for one of these chats has its log taken in first.

Nothing else opens such a log, so that it is mended, and counted, once. Used on the event loop only."""

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
from services.memory.storage.index_progress import IndexProgress
from services.runtime.clock import monotonic_s

DAY_MS = 24 * 3_600_000

LogState = tuple[int, int]
"""Length and time of change (ns) of a log."""

STEP_LOGS_MAX, STEP_BYTES_MAX = 100, 512 * 1024
"""Logs and bytes that the index takes in at once: reads wait so long for its thread."""

_WAITING = Gauge("headrace_index_chats_waiting", "Chats whose logs the index has not taken in yet; lists lack them.")


class Backlog:
    def __init__(self, logs: Mapping[str, LogState], take: Callable[[Sequence[str]], Awaitable[float]]) -> None:
        """`logs` are by chat, the first to be taken in first; `take` writes the rows of whole logs and returns the CPU
        seconds of that."""
        self._logs = dict(logs)
        self._taken: dict[str, asyncio.Future[float]] = {}
        self._take = take
        self._count = len(logs)
        self._emptied = asyncio.Event()
        self._note_size()

    def get_progress(self) -> IndexProgress | None:
        """How far the index is; None: it has everything."""
        return IndexProgress(self._count - len(self._logs), self._count) if self._logs else None

    def check_empty(self, wanted: str) -> None:
        """Raises IndexIncomplete where `wanted` may be in a log that was not taken in."""
        if (progress := self.get_progress()) is not None:
            raise progress.make_error(wanted)

    def check_since(self, at_ms: int, wanted: str) -> None:
        """Raises IndexIncomplete where a log that was not taken in may have lines of `at_ms` or later: it was changed
        then, or the day before, as clocks differ."""
        progress = self.get_progress()
        if progress is not None and max(mtime_ns for _, mtime_ns in self._logs.values()) // 1_000_000 >= at_ms - DAY_MS:
            raise progress.make_error(wanted)

    async def wait_until_empty(self) -> None:
        await self._emptied.wait()

    async def take_in(self, chat_id: str) -> bool:
        """Have the index take in a log now; False if it has it."""
        if chat_id not in self._logs:
            return False
        if (taken := self._taken.get(chat_id)) is None:
            await self._take_some([chat_id])
        else:
            await asyncio.shield(taken)
        return True

    async def take_step(self) -> float:
        """Have the index take in the next logs, if there are any; return the CPU seconds of that."""
        if step := list(self._choose_step()):
            return await self._take_some(step)
        await self.wait_for_taken()  # each is a caller's
        return 0.0

    async def wait_for_taken(self) -> None:
        """Wait for what is being taken in now."""
        if self._taken:
            await asyncio.wait(set(self._taken.values()))

    async def _take_some(self, chat_ids: Sequence[str]) -> float:
        # A task of its own: a caller who leaves must leave nobody else waiting.
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
"""How long another thread of this process waits for the interpreter meanwhile: a delta is to be passed on soon."""

BUSY_SHARE = 0.1
"""Share of a core that the rest of the process uses when it is at work..."""

BUSY_PAUSE = 3.0
"""... and the pause that it is given then, as a multiple of the step before."""

RETRY_S = 1.0
"""Pause where the index cannot be written now."""

RunBacklog: TypeAlias = "Callable[[Backlog, Callable[[], bool], Settle], Coroutine[Any, Any, None]]"

Settle: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

log = structlog.get_logger()


async def run_steps(backlog: Backlog, is_behind: Callable[[], bool], settle: Settle) -> None:
    """Have the index take in all of `backlog`; while it `is_behind`, as the disk refuses it, only `settle` is tried."""
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
                    await settle()
            await asyncio.sleep(pause_s)
    log.warning("index complete", chats=count, took_s=round(monotonic_s() - begun_s, 1))


async def _take_step(backlog: Backlog) -> float:
    """Take a step and return the seconds to pause behind it: where the rest of the process is at work, some."""
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
