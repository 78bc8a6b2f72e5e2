"""Unary calls to peers, on behalf of the caller of the current request."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from headrace.streams import rpc_errors
from services.runtime.rpc import call_ids

UNARY_TIMEOUT_S = 30.0
"""Timeout of a unary call. Streams have none: a run waits for people, and keepalive detects a dead peer."""


async def call_peer(rpc: Any, request: Message, timeout_s: float = UNARY_TIMEOUT_S) -> Any:
    """Call a peer and return its reply; raise its HeadraceError, or AioRpcError for a status without one."""
    with rpc_errors():
        return await rpc(request, timeout=timeout_s, metadata=call_ids.forward_metadata())
