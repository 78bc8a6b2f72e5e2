"""One call of a peer, in the name of the caller whose request needs it."""

from __future__ import annotations

from typing import Any

from google.protobuf.message import Message

from headrace.streams import rpc_errors
from services.runtime.rpc import call_ids

UNARY_TIMEOUT_S = 30.0
"""Timeout of one answer. Streams have none: a run waits for people, and keepalive finds a dead peer."""


async def call_peer(rpc: Any, request: Message, timeout_s: float = UNARY_TIMEOUT_S) -> Any:
    """Return the reply to `request`; raise the peer's HeadraceError, or AioRpcError for a status that is not ours."""
    with rpc_errors():
        return await rpc(request, timeout=timeout_s, metadata=call_ids.forward_metadata())
