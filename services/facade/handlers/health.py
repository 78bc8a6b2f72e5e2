"""Liveness of the facade (/healthz), its own readiness (/readyz), and that of all services behind it (/readyz?all)."""

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
    """Make the handler that answers 200, with `all` when each peer and its own peers are ready, else 503.

    Without `all` no peer counts: a facade that left its load balancer with every peer's trouble would take away what
    does not need that peer, and clients would get refused connections in the place of errors.
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
