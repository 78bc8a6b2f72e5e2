"""Metrics for Prometheus, served on a separate port, including the lag and the load of the event loop.

The HTTP server is imported on demand, as that takes 0.1 s.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING

import structlog
from prometheus_client import REGISTRY, Gauge, Histogram
from prometheus_client.exposition import choose_encoder

from services.runtime.clock import monotonic_s, thread_time_s
from services.runtime.ending import guarding
from services.runtime.net.listening import bind_port

if TYPE_CHECKING:
    from aiohttp import web

log = structlog.get_logger()


@asynccontextmanager
async def serving_metrics(listen: str) -> AsyncGenerator[str]:
    """Answer GET /metrics at `listen` (empty: nowhere) inside the block; yield the bound address.

    Raises OSError if the address cannot be bound.
    """
    if not listen:
        yield ""
        return
    from aiohttp import web

    app = web.Application()
    app.router.add_get("/metrics", get_metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        sockets, port = bind_port(listen)
        for item in sockets:
            await web.SockSite(runner, item).start()
        async with measuring_loop_lag():
            yield f"{listen.rpartition(':')[0]}:{port}"
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


LOAD_INTERVAL_S = 5.0

BUSY_RATIO = 0.9
"""Load from which the log says that the core is used up: calls then wait for each other."""

BUSY_PAUSE_S = 600.0
"""Least time between two such lines."""

LOAD = Gauge(
    "headrace_event_loop_busy_ratio",
    "CPU time of the event loop's thread, as a share of the last 5 s; near 1, the process has used up its core.",
)


def measuring_loop_lag(interval_s: float = INTERVAL_S) -> AbstractAsyncContextManager[None]:
    return guarding(_measure_lag(interval_s))


def measuring_loop_load(interval_s: float = LOAD_INTERVAL_S) -> AbstractAsyncContextManager[None]:
    """Measure the load of this thread's event loop inside the block, and log when its core is used up."""
    return guarding(_measure_load(interval_s))


async def _measure_lag(interval_s: float) -> None:
    loop = asyncio.get_running_loop()
    while True:
        due_s = loop.time() + interval_s
        await asyncio.sleep(interval_s)
        LAG.observe(max(loop.time() - due_s, 0))


async def _measure_load(interval_s: float) -> None:
    quiet_until_s = 0.0
    while True:
        began_s, began_cpu_s = monotonic_s(), thread_time_s()
        await asyncio.sleep(interval_s)
        now_s = monotonic_s()
        ratio = (thread_time_s() - began_cpu_s) / (now_s - began_s)
        LOAD.set(ratio)
        if ratio >= BUSY_RATIO and now_s >= quiet_until_s:
            quiet_until_s = now_s + BUSY_PAUSE_S
            log.warning("event loop busy", problem=f"{ratio:.0%} of its core; use --replicas or --split, or more pods")
