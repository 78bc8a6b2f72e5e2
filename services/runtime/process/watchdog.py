"""Ends a process with a stalled event loop, so that its supervisor restarts it.

A separate process watches the loop's heartbeats: a thread could not run while a C extension holds the interpreter.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

BEATS = 20
"""Number of heartbeats in the time after which the loop counts as stalled."""

_PROGRAM = Path(__file__).with_name("watchdog_process.py")


@asynccontextmanager
async def watching_loop(stall_s: float) -> AsyncGenerator[None]:
    """Kill the process if its loop has not turned for `stall_s` seconds inside the block; 0: never."""
    if not stall_s:
        yield
        return
    loop, threads = asyncio.get_running_loop(), os.memfd_create("threads")
    faulthandler.register(signal.SIGUSR2, file=threads)
    command = [sys.executable, "-I", "-S", _PROGRAM, str(stall_s), str(threads)]
    watchdog = await asyncio.to_thread(subprocess.Popen[bytes], command, stdin=subprocess.PIPE, pass_fds=[threads])
    assert watchdog.stdin is not None
    heart = watchdog.stdin.fileno()
    os.set_blocking(heart, False)

    def beat() -> None:
        nonlocal timer
        with suppress(OSError):  # the watchdog has not read for long, or is gone
            os.write(heart, b".")
        timer = loop.call_later(stall_s / BEATS, beat)

    timer = loop.call_soon(beat)
    try:
        yield
    finally:
        timer.cancel()
        watchdog.stdin.close()
        await asyncio.to_thread(watchdog.wait)
        faulthandler.unregister(signal.SIGUSR2)
        os.close(threads)
