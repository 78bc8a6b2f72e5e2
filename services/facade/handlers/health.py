"""Liveness of the facade (/healthz), and readiness of all services behind it (/readyz)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import grpc
from aiohttp import web

from services.facade.responses import envelope
from services.runtime.rpc.health import check_peers


async def serve_healthz(_: web.Request) -> web.StreamResponse:
    """Answer 200 without asking another service."""
    return envelope.wrap_data({"status": "live"})


def make_readyz_handler(
    peers: Mapping[str, grpc.aio.Channel],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Make the handler that answers 200 when each peer and its own peers are ready, else 503."""

    async def answer(_: web.Request) -> web.StreamResponse:
        ready = await check_peers(peers)
        if all(ready.values()):
            return envelope.wrap_data(ready)
        message = f"not ready: {', '.join(name for name, is_ready in ready.items() if not is_ready)}"
        return envelope.build_failure(503, "NOT_READY", message, retriable=True, data=ready)

    return answer
