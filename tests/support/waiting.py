"""Waiting for what comes about by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

WAIT_S = 100.0
LOOK_S = 0.01


async def wait_until(condition: Callable[[], object]) -> None:
    """Return when the condition is true; it is looked at again and again."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(LOOK_S)
