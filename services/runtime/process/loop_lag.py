"""Measures how late the event loop runs a timer, and so every delta."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from prometheus_client import Histogram

from services.runtime.ending import guard_task

INTERVAL_S = 0.25
"""Time between timers; a shorter stall is seen in proportion to its length."""

LAG = Histogram(
    "headrace_event_loop_lag_seconds",
    "By how much timers come late.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5),
)


@asynccontextmanager
async def measuring_loop_lag(interval_s: float = INTERVAL_S) -> AsyncGenerator[None]:
    watching = guard_task(asyncio.create_task(_measure_lag(interval_s)))
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.wait({watching})


async def _measure_lag(interval_s: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + interval_s
        await asyncio.sleep(interval_s)
        LAG.observe(max(loop.time() - due_s, 0))
