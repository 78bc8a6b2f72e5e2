"""GET and HEAD /api/resource: streams a file of a workspace.

A file may contain code written to run in our origin. Only types that browsers do not execute are displayed
inline; all others are sent as attachments, and nosniff fixes the type.

GET /api/data/export streams an archive while it is made, so its size is not known in advance. A client
recognises a truncated archive by the broken connection or the missing manifest.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any, TypeAlias
from urllib.parse import quote

import grpc
from aiohttp import web

from headrace.errors import InvalidRequest, OutOfRange
from headrace.streams import reading
from headrace.v1 import data_pb2, tools_pb2
from services.facade.proto_routes import Route
from services.facade.requests import byte_range, query_string
from services.facade.requests.body import read_single_header
from services.facade.requests.byte_range import ByteRange
from services.facade.responses import envelope
from services.facade.responses.frame_writer import StreamTimeouts
from services.runtime.rpc import call_ids

Piece: TypeAlias = tools_pb2.ReadFileResponse | data_pb2.ExportDataResponse

TEXT_TYPES = frozenset({"text/plain", "text/csv", "text/markdown", "text/tab-separated-values", "application/json"})

INLINE_TYPES = TEXT_TYPES | {"image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf"}
"""Types that a browser may display inline; HTML, SVG and XML are not among them."""

SANDBOX_POLICY = "default-src 'none'; sandbox"
"""Content-Security-Policy of all files except PDF, because it would stop the PDF viewer."""


def make_file_handler(
    route: Route, channel: grpc.aio.Channel, timeouts: StreamTimeouts
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    rpc = channel.unary_stream(route.grpc_path, *route.serializers)

    async def answer(request: web.Request) -> web.StreamResponse:
        whole = _parse_request(request)
        wanted = byte_range.parse_range(read_single_header(request, "Range")) if request.method == "GET" else None
        unless_changed = read_single_header(request, "If-Range")
        if wanted is not None:
            part = tools_pb2.ReadFileRequest(offset=wanted.offset, length=wanted.length)
            part.MergeFrom(whole)
            try:
                async with reading(rpc(part, metadata=call_ids.forward_metadata())) as pieces:
                    first = await anext(pieces)
                    if unless_changed in (None, _format_etag(first.info)):
                        return await _send_file(request, first, pieces, wanted, timeouts)
            except OutOfRange as error:
                if unless_changed is None:
                    failure = envelope.build_failure(416, error.reason, error.message, details=error.metadata)
                    failure.headers["Content-Range"] = f"bytes */{error.metadata.get('sizeBytes', '*')}"
                    return failure
        async with reading(rpc(whole, metadata=call_ids.forward_metadata())) as pieces:
            return await _send_file(request, await anext(pieces), pieces, None, timeouts)

    return answer


def _parse_request(request: web.Request) -> tools_pb2.ReadFileRequest:
    asked: Any = query_string.decode_parameters(
        query_string.parse_parameters(request.rel_url.raw_query_string), tools_pb2.ReadFileRequest.DESCRIPTOR
    )
    if asked.offset or asked.length:
        raise InvalidRequest.of("offset", "must be absent; use the Range header")
    return asked


async def _send_file(
    request: web.Request,
    first: tools_pb2.ReadFileResponse,
    pieces: AsyncIterator[tools_pb2.ReadFileResponse],
    wanted: ByteRange | None,
    timeouts: StreamTimeouts,
) -> web.StreamResponse:
    info, headers = first.info, _build_headers(first.info)
    if any(tag.value in ("*", info.version) for tag in request.if_none_match or ()):
        return web.Response(status=304, headers=headers)
    response = web.StreamResponse(headers=headers)
    start, end = 0, info.size_bytes
    if wanted is not None and info.size_bytes:
        start, end = wanted.resolve_range(info.size_bytes)
        response.set_status(206)
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{info.size_bytes}"
    response.content_length = end - start
    await response.prepare(request)
    if request.method == "HEAD":
        return response
    await write_pieces(request, response, first, pieces, timeouts)
    return response


async def write_pieces(
    request: web.Request,
    response: web.StreamResponse,
    first: Piece,
    pieces: AsyncIterator[Piece],
    timeouts: StreamTimeouts,
) -> None:
    """Write `first` and the remaining pieces; on a failure, abort the connection."""
    try:
        await _write_piece(response, first.data, timeouts)
        async for piece in pieces:
            await _write_piece(response, piece.data, timeouts)
    except Exception:
        # Fewer bytes than announced: on a kept-alive connection, the client would take the next answer for the
        # rest.
        if request.transport is not None:
            request.transport.abort()
        raise
    await response.write_eof()


async def _write_piece(response: web.StreamResponse, data: bytes, timeouts: StreamTimeouts) -> None:
    try:
        async with asyncio.timeout(timeouts.slow_reader_s):
            await response.write(data)
    except TimeoutError:
        raise ConnectionResetError("the client stopped reading") from None


_UNSAFE = re.compile(r"[^\w .,()+=@-]", re.ASCII)
"""What the plain file name, for clients such as curl that read no other, does not contain."""


def _build_headers(info: tools_pb2.FileInfo) -> dict[str, str]:
    shown = "inline" if info.mime_type in INLINE_TYPES else "attachment"
    name = info.path.rpartition("/")[2]
    names = f"filename=\"{_UNSAFE.sub('_', name)}\"; filename*=UTF-8''{quote(name, safe='')}"
    headers = {
        "Content-Type": info.mime_type + ("; charset=utf-8" if info.mime_type in TEXT_TYPES else ""),
        "Content-Disposition": f"{shown}; {names}",
        "X-Content-Type-Options": "nosniff",
        "Accept-Ranges": "bytes",
        "Cache-Control": "private, no-cache",  # cached, and revalidated by ETag
        "ETag": _format_etag(info),
        "Last-Modified": format_datetime(datetime.fromtimestamp(info.modified_at // 1000, UTC), usegmt=True),
    }
    if info.mime_type != "application/pdf":
        headers["Content-Security-Policy"] = SANDBOX_POLICY
    return headers


def _format_etag(info: tools_pb2.FileInfo) -> str:
    return f'"{info.version}"'


ARCHIVE_HEADERS = {
    "Content-Type": "application/x-tar",
    "Content-Disposition": 'attachment; filename="headrace-data.tar"',
    "X-Content-Type-Options": "nosniff",
}


def make_archive_handler(
    route: Route, channel: grpc.aio.Channel, timeouts: StreamTimeouts
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    rpc: Any = channel.unary_stream(route.grpc_path, *route.serializers)

    async def answer(request: web.Request) -> web.StreamResponse:
        parameters = query_string.parse_parameters(request.rel_url.raw_query_string)
        wanted = query_string.decode_parameters(parameters, data_pb2.ExportDataRequest.DESCRIPTOR)
        async with reading(rpc(wanted, metadata=call_ids.forward_metadata())) as pieces:
            first = await anext(pieces)  # an RPC error comes before any header
            response = web.StreamResponse(headers=ARCHIVE_HEADERS)
            await response.prepare(request)
            await write_pieces(request, response, first, pieces, timeouts)
            return response

    return answer
