"""Metrics for Prometheus, served on a separate port, including the lag of the event loop.

The HTTP server is imported on demand, as that takes 0.1 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, Histogram
from prometheus_client.exposition import choose_encoder

from services.runtime.ending import guard_task

if TYPE_CHECKING:
    from aiohttp import web


@asynccontextmanager
async def serving_metrics(listen: str) -> AsyncGenerator[str]:
    """Answer GET /metrics at `listen` (empty: nowhere) inside the block; yield the bound address.

    Raises OSError if the address cannot be bound.
    """
    if not listen:
        yield ""
        return
    from aiohttp import web

    host, _, port = listen.rpartition(":")
    app = web.Application()
    app.router.add_get("/metrics", get_metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, int(port)).start()
        async with measuring_loop_lag():
            yield f"{host}:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def get_metrics(request: web.Request) -> web.Response:
    """Answer in the format that the scraper prefers; only OpenMetrics has exemplars."""
    from aiohttp import web

    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    return web.Response(body=encode(REGISTRY), headers={"Content-Type": content_type})


INTERVAL_S = 0.25
"""Time between timers; a shorter stall is measured with a probability in proportion to its length."""

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
