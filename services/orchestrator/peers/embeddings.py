"""Embeddings for callers outside the suite: forwarded to the gateway, with bounded concurrency."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import Overloaded, QueueFull
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth import identity
from services.runtime.capacity import RETRY_AFTER_S, Capacity

if TYPE_CHECKING:
    from headrace.v1 import llm_pb2

CALLS_MAX = 32
"""Maximum concurrent calls, since a response may have 40 MiB; a tenant may use as many as remain free."""

TIMEOUT_S = 120.0
"""Default deadline; a large batch takes some seconds."""


class Embeddings:
    def __init__(self, peers: Peers, *, is_shared: bool) -> None:
        self._peers = peers
        self._capacity = Capacity(CALLS_MAX, is_shared=is_shared)

    async def embed(self, request: llm_pb2.EmbedRequest, remaining_s: float | None) -> llm_pb2.EmbedResponse:
        """Return the gateway's response.

        Raises:
            Overloaded, QueueFull: All places are taken, or the tenant's share of them.
        """
        tenant = identity.require_identity().tenant
        if not self._capacity.has_room_for(tenant):
            if self._capacity.used >= CALLS_MAX:
                message = f"{CALLS_MAX} calls for embeddings are under way; try again later"
                raise Overloaded(message, retry_after_s=RETRY_AFTER_S)
            message = "the tenant has as many calls for embeddings under way as are left for all others"
            raise QueueFull(message, retry_after_s=RETRY_AFTER_S)
        self._capacity.acquire(tenant)
        try:
            return await self._peers.llm.Embed(request, timeout=TIMEOUT_S if remaining_s is None else remaining_s)
        finally:
            self._capacity.release(tenant)
