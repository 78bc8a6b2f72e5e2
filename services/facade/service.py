"""The HTTP server: the contract's routes and the health pages, served until told to drain."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import grpc
import structlog
from aiohttp import web

from services.facade.around import around, on_prepare
from services.facade.calls import answering
from services.facade.config import Config
from services.facade.draining import OpenRequests
from services.facade.incoming import aiohttp_logger
from services.facade.readiness import healthz, readyz
from services.facade.routes import routes
from services.runtime.server import EDGE_MESSAGE_BYTES_MAX

HANG_UP_S = 0.2
"""For connections to close once the drain is over; aiohttp waits twice that."""

log = structlog.get_logger()


@asynccontextmanager
async def serving(config: Config, peers: Mapping[str, grpc.aio.Channel]) -> AsyncGenerator[str]:
    """Serve inside the block, which is given the address (host:port).

    Leaving it drains: no new connections, open requests get `drain_s`, then the rest is hung up on.
    Raises OSError when the address cannot be bound.
    """
    open_requests = OpenRequests()
    application = _application(peers, config.heartbeat_s, open_requests)
    runner = web.AppRunner(
        application,
        access_log=None,  # `around` writes the one line
        logger=aiohttp_logger(),
        auto_decompress=False,  # compressed bodies are refused: a small one may hide gigabytes
        handler_cancellation=True,  # a client that leaves stops the RPC behind it, even while nothing is written
        shutdown_timeout=HANG_UP_S,
    )
    await runner.setup()
    try:
        site = web.TCPSite(runner, config.host, config.port)
        await site.start()
        address = f"{config.host}:{runner.addresses[0][1]}"
        log.info("serving", addresses=[address])
        yield address
        await site.stop()
        if runner.server is not None:
            runner.server.pre_shutdown()  # kept-alive connections get no further request
        await open_requests.wait(config.drain_s)
    finally:
        await runner.cleanup()
    log.info("stopped", addresses=[address], cut=open_requests.count)


def _application(
    peers: Mapping[str, grpc.aio.Channel], heartbeat_s: float, open_requests: OpenRequests
) -> web.Application:
    application = web.Application(middlewares=[open_requests.counting, around], client_max_size=EDGE_MESSAGE_BYTES_MAX)
    application.on_response_prepare.append(on_prepare)
    for route in routes():
        answer = answering(route, peers[route.peer], heartbeat_s)
        application.router.add_route(route.verb, route.path, answer)
    application.router.add_get("/healthz", healthz)
    application.router.add_get("/readyz", readyz(peers))
    return application
