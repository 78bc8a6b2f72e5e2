"""Waits until a condition holds."""

import asyncio
from collections.abc import Awaitable, Callable

WAIT_S = 100.0
LOOK_S = 0.01


async def wait_until(condition: Callable[[], object]) -> None:
    """Poll the condition until it is true. Raises TimeoutError after WAIT_S."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(LOOK_S)


async def until(ask: Callable[[], Awaitable[object]]) -> None:
    """Like `wait_until`, for an asynchronous condition."""
    async with asyncio.timeout(WAIT_S):
        while not await ask():
            await asyncio.sleep(LOOK_S)
