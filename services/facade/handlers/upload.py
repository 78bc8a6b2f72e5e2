"""POST /api/upload: stores a form's file."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from aiohttp import web

from headrace.v1 import tools_pb2
from services.facade.proto_routes import Route
from services.facade.requests import query_string
from services.facade.requests.file_form import Fields, check_utf8, upload_form
from services.facade.responses import envelope

CHAT_ID = "X-Chat-Id"
"""Header with the file's chat, for whoever reads only the reference in the answer's `data`."""


def make_upload_handler(
    route: Route, channel: grpc.aio.Channel
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    rpc = channel.stream_unary(route.grpc_path, *route.serializers)

    async def receive_form(request: web.Request) -> web.StreamResponse:
        reply, _ = await upload_form(request, rpc, _make_start)
        answer = envelope.wrap_response(reply, route.response_body)
        answer.headers[CHAT_ID] = reply.chat_id
        return answer

    return receive_form


def _make_start(file_name: str, fields: Fields) -> tools_pb2.UploadStart:
    named = [] if any(field == "name" for field, _ in fields) else [("name", check_utf8(file_name))]
    start: Any = query_string.decode_parameters(fields + named, tools_pb2.UploadStart.DESCRIPTOR)
    return start
