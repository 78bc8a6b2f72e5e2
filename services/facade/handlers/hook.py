"""POST /hooks/{schedule_id}: forwards another system's webhook, with its signature, to the schedule."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import grpc
from aiohttp import web

from headrace.v1 import schedule_pb2
from services.facade.peer_calls import call_peer
from services.facade.proto_routes import Route
from services.facade.requests.body import read_raw_body, read_single_header
from services.facade.responses import envelope
from services.runtime.auth.identity import acting_as

PAYLOAD_BYTES_MAX = 65_536

BODY_TIMEOUT_S = 10.0
"""Timeout of reading the body, which callers may send without a credential."""


def make_hook_handler(
    route: Route, channel: grpc.aio.Channel
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    rpc = channel.unary_unary(route.grpc_path, *route.serializers)

    async def receive(request: web.Request) -> web.StreamResponse:
        message = schedule_pb2.ReceiveWebhookRequest(
            schedule_id=_clean_text(request.match_info["schedule_id"]),
            webhook_id=_read_header(request, "Webhook-Id"),
            timestamp=_read_header(request, "Webhook-Timestamp"),
            signature=_read_header(request, "Webhook-Signature"),
            payload=await read_raw_body(request.clone(client_max_size=PAYLOAD_BYTES_MAX), timeout_s=BODY_TIMEOUT_S),
        )
        with acting_as(None):  # no caller identity: the signature authenticates it
            reply = await call_peer(rpc, message)
        return envelope.wrap_response(reply, route.response_body)

    return receive


def _read_header(request: web.Request, name: str) -> str:
    return _clean_text(read_single_header(request, name) or "")


def _clean_text(text: str) -> str:
    """Return the text, or an empty string if it is not ASCII: no valid header is, and an empty one proves nothing."""
    return text if text.isascii() else ""
