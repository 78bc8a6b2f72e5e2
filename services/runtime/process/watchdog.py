"""Ends a process whose event loop has stood still for too long, so that whoever runs it starts it anew."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from services.runtime.ending import end_process

STALLED = 71
"""Exit code of a process that the watchdog ended."""

CHECKS = 10
"""Looks at the loop before it counts as stalled. They are counted, not timed: a process that was suspended for an hour
has had one look."""


@asynccontextmanager
async def watching_loop(stall_s: float) -> AsyncGenerator[None]:
    """End the process when its loop has not turned for `stall_s` seconds inside the block; 0 never does."""
    if not stall_s:
        yield
        return
    stopped, turned = threading.Event(), threading.Event()
    loop = asyncio.get_running_loop()
    thread = threading.Thread(target=_watch, args=(loop, stopped, turned, stall_s), name="watchdog", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()


def _watch(loop: asyncio.AbstractEventLoop, stopped: threading.Event, turned: threading.Event, stall_s: float) -> None:
    missed = 0
    try:
        loop.call_soon_threadsafe(turned.set)
        while not stopped.wait(stall_s / CHECKS):
            if turned.is_set():
                missed = 0
                turned.clear()
                loop.call_soon_threadsafe(turned.set)
            elif (missed := missed + 1) >= CHECKS:
                _end_process(stall_s)
    except RuntimeError:  # the loop is closed
        return


def _end_process(stall_s: float) -> None:
    with os.fdopen(os.memfd_create("threads"), "r+") as threads:
        faulthandler.dump_traceback(threads)
        threads.seek(0)
        end_process(STALLED, "event loop stalled", seconds=stall_s, threads=threads.read().splitlines())
