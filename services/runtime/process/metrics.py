"""Metrics for Prometheus: what a process counts, on a port of its own, away from the callers' one.

Each service declares its counters where it counts, with prometheus_client's process-wide registry. The HTTP server is
imported where one is wanted: it takes a tenth of a second, and most services have no other use for it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from services.runtime.process.loop_lag import measuring_loop_lag

if TYPE_CHECKING:
    from aiohttp import web


@asynccontextmanager
async def serving_metrics(listen: str) -> AsyncGenerator[str]:
    """Answer GET /metrics at `listen`, host:port, inside the block; gives the address that was bound.

    An empty `listen` serves nothing, and then the loop's lag is not measured either. Raises OSError when the address
    cannot be bound.
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


async def get_metrics(_: web.Request) -> web.Response:
    """Answer with the process's metrics in Prometheus' format."""
    from aiohttp import web

    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
