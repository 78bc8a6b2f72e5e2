"""Liveness of the facade (/healthz), its readiness (/readyz), and the readiness of all services (/readyz?all)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

import grpc
from aiohttp import web

from services.facade.responses import envelope
from services.runtime.rpc.health import check_peers


async def serve_healthz(_: web.Request) -> web.StreamResponse:
    """Answer 200 without calling another service."""
    return envelope.wrap_data({"status": "live"})


def make_readyz_handler(
    peers: Mapping[str, grpc.aio.Channel],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return the /readyz handler; with `all` it answers 503 unless each peer and the peer's own peers are ready.

    Without `all`, peers do not count: a facade that left its load balancer because one peer fails would also
    stop the routes that do not need this peer, and clients would see refused connections instead of errors.
    """

    async def answer(request: web.Request) -> web.StreamResponse:
        if "all" not in request.query:
            return envelope.wrap_data({"facade": True})
        ready = await check_peers(peers)
        if all(ready.values()):
            return envelope.wrap_data(ready)
        message = f"not ready: {', '.join(name for name, is_ready in ready.items() if not is_ready)}"
        return envelope.build_failure(503, "NOT_READY", message, retriable=True, data=ready)

    return answer
