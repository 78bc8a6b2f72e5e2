"""Processes that a test has started."""

import asyncio
import os
from pathlib import Path

_others: set[int] = set()
"""Processes that this one had before the test: the suite of other tests in the session, for example."""


def _children() -> set[int]:
    return set(map(int, Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()))


def leave_out_others() -> None:
    """Note whose processes are none of the test's."""
    _others.clear()
    _others.update(_children())


def processes() -> set[int]:
    """Return the processes that the test started and that still run."""
    return _children() - _others


async def nothing_running() -> None:
    """Wait until no process that the test has started is left."""
    async with asyncio.timeout(50):
        while processes():  # nothing tells when one ends
            await asyncio.sleep(0.005)
