"""Taking in what the index lacks, step by step, behind a service that serves."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias

import structlog

from headrace.errors import HeadraceError
from services.runtime.clock import monotonic_s

if TYPE_CHECKING:
    from services.memory.storage.files.backlog.backlog import Backlog

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
