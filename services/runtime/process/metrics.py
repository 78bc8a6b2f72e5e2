"""Metrics for Prometheus, served on a port of their own.

The HTTP server is imported on demand, as that takes 0.1 s.
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
    """Answer GET /metrics at `listen` (empty: nowhere) inside the block; yields the bound address.

    Raises OSError when the address cannot be bound.
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
    from aiohttp import web

    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
