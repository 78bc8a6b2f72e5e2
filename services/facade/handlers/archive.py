"""GET /api/data/export: an archive that is made while it is sent.

Its size is not known before, so that a client finds a cut by the connection, which is broken then, or by the manifest
that is missing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
from aiohttp import web

from headrace.streams import reading
from headrace.v1 import data_pb2
from services.facade.handlers.resource import write_pieces
from services.facade.proto_routes import Route
from services.facade.requests import query_string
from services.facade.responses.frame_writer import StreamTimeouts
from services.runtime.rpc import call_ids

HEADERS = {
    "Content-Type": "application/x-tar",
    "Content-Disposition": 'attachment; filename="headrace-data.tar"',
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def make_archive_handler(
    route: Route, channel: grpc.aio.Channel, timeouts: StreamTimeouts
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    rpc: Any = channel.unary_stream(route.grpc_path, *route.serializers)

    async def answer(request: web.Request) -> web.StreamResponse:
        parameters = query_string.parse_parameters(request.rel_url.raw_query_string)
        wanted = query_string.decode_parameters(parameters, data_pb2.ExportDataRequest.DESCRIPTOR)
        async with reading(rpc(wanted, metadata=call_ids.forward_metadata())) as pieces:
            first = await anext(pieces)  # a refusal comes before any header
            response = web.StreamResponse(headers=HEADERS)
            await response.prepare(request)
            await write_pieces(request, response, first, pieces, timeouts)
            return response

    return answer
