"""grpc.health.v1, with the names `chain` for a service and everything it needs, and `live` for its process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import aio as health_aio

CHAIN = "chain"
LIVE = "live"
"""Name for liveness: a process without valid files is not ready, but a restart would not help."""

PEER_TIMEOUT_S = 2.0
"""Time for a peer's answer."""

SERVING = health_pb2.HealthCheckResponse.SERVING


class Health(health_aio.HealthServicer):
    """The library's servicer; a check of `chain` also calls `peers`.

    `is_usable` (a database) counts only in `chain`, because all replicas share it. `is_configured` counts in every
    check: a replica that starts without valid files must not replace one that has them.
    """

    def __init__(
        self,
        peers: Mapping[str, grpc.aio.Channel],
        is_usable: Callable[[], bool],
        is_configured: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__()
        self._peers = peers
        self._is_usable = is_usable
        self._is_configured = is_configured

    async def Check(
        self,
        request: health_pb2.HealthCheckRequest,
        context: grpc.aio.ServicerContext[health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse],
    ) -> health_pb2.HealthCheckResponse:
        if request.service == LIVE:
            return health_pb2.HealthCheckResponse(status=SERVING)
        if not self._is_configured():
            return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)
        if request.service != CHAIN:
            return await super().Check(request, context)
        own = await super().Check(health_pb2.HealthCheckRequest(), context)
        if own.status == SERVING and self._is_usable() and all((await check_peers(self._peers)).values()):
            return own
        return health_pb2.HealthCheckResponse(status=health_pb2.HealthCheckResponse.NOT_SERVING)


async def check_peers(peers: Mapping[str, grpc.aio.Channel]) -> dict[str, bool]:
    answers = await asyncio.gather(*(_is_ready(channel) for channel in peers.values()))
    return dict(zip(peers, answers, strict=True))


async def _is_ready(channel: grpc.aio.Channel) -> bool:
    check = health_pb2_grpc.HealthStub(channel).Check  # pyright: ignore[reportAttributeAccessIssue] - untyped stub
    try:
        reply = await check(health_pb2.HealthCheckRequest(service=CHAIN), timeout=PEER_TIMEOUT_S)
    except grpc.aio.AioRpcError:
        return False
    return reply.status == SERVING
