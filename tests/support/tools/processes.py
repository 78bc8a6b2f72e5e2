"""Processes that a test has started."""

import asyncio
import os
from pathlib import Path

_others: set[int] = set()
"""Processes that this one had before the test: the suite of other tests in the session, for example."""


def _children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def note_other_processes() -> None:
    """Note the current child processes, which are not the test's."""
    _others.clear()
    _others.update(_children())


def processes() -> set[int]:
    """Return the running processes that the test started."""
    return _children() - _others


async def wait_for_no_processes() -> None:
    """Wait until all processes that the test started have exited."""
    async with asyncio.timeout(50):
        while processes():  # nothing tells when one ends
            await asyncio.sleep(0.005)
