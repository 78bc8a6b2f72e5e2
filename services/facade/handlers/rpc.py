"""Maps one HTTP request to one RPC."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import grpc
from aiohttp import web
from google.protobuf.message import Message

from headrace.errors import InvalidRequest, Unsupported
from headrace.v1 import tools_pb2
from services.facade.handlers import hook, resource
from services.facade.peer_calls import call_peer
from services.facade.proto_routes import Route
from services.facade.requests import json_body, query_string
from services.facade.requests.body import read_body, read_single_header
from services.facade.requests.file_form import Fields, check_utf8, upload_form
from services.facade.responses import envelope, json_answer, sse
from services.facade.responses.frame_writer import StreamTimeouts
from services.runtime.rpc import call_ids
from services.runtime.rpc.push_stream import Watches

LAST_EVENT_ID = "Last-Event-ID"

LAST_EVENT_ID_QUERY = "lastEventId"
"""The parameter in which a polyfill of EventSource sends it."""

RESUMED_BY = {"last_seq": "lastSeq", "cursor": "cursor"}
"""Request parameter that Last-Event-ID overrides, by field."""

Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


def make_handler(route: Route, channel: grpc.aio.Channel, timeouts: StreamTimeouts, watches: Watches) -> Answer:
    if route.is_unary:
        return _make_unary_handler(route, channel)
    if route.is_stream_of_events:
        return _make_stream_handler(route, channel, timeouts)
    if route.is_watch:
        return _make_watch_handler(route, channel, timeouts, watches)
    if route.is_upload:
        return make_upload_handler(route, channel)
    if route.is_hook:
        return hook.make_hook_handler(route, channel)
    if route.is_file:
        return resource.make_file_handler(route, channel, timeouts)
    if route.is_archive:
        return resource.make_archive_handler(route, channel, timeouts)

    async def refuse_request(_: web.Request) -> web.StreamResponse:
        raise Unsupported(f"{route.verb} {route.path} is not served by this version")

    return refuse_request


def _make_unary_handler(route: Route, channel: grpc.aio.Channel) -> Answer:
    rpc = channel.unary_unary(route.grpc_path, *route.serializers)

    async def answer(request: web.Request) -> web.StreamResponse:
        message = await _parse_request(request, route)
        reply = await call_peer(rpc, message)
        has_view = isinstance(reply, tools_pb2.GetViewportResponse) and reply.HasField("view")
        return envelope.wrap_response(reply, "view" if has_view else route.response_body)

    return answer


def _make_stream_handler(route: Route, channel: grpc.aio.Channel, timeouts: StreamTimeouts) -> Answer:
    serialize, deserialize = route.serializers
    rpc = channel.unary_stream(route.grpc_path, serialize, deserialize)
    raw_rpc = channel.unary_stream(route.grpc_path, serialize)
    can_fold = "stream" in route.rpc.input_type.fields_by_name

    async def answer(request: web.Request) -> web.StreamResponse:
        message: Any = await _parse_request(request, route)
        metadata = call_ids.forward_metadata()
        if can_fold and message.HasField("stream") and not message.stream:
            return await json_answer.answer_run(rpc(message, metadata=metadata))
        return await sse.stream_run(request, message, raw_rpc(message, metadata=metadata), timeouts)

    return answer


def _make_watch_handler(route: Route, channel: grpc.aio.Channel, timeouts: StreamTimeouts, watches: Watches) -> Answer:
    serialize, deserialize = route.serializers
    rpc = channel.unary_stream(route.grpc_path, serialize)

    async def answer(request: web.Request) -> web.StreamResponse:
        message: Any = await _parse_request(request, route)
        call = rpc(message, metadata=call_ids.forward_metadata())
        return await sse.stream_messages(request, call, deserialize, timeouts, watches)

    return answer


async def _parse_request(request: web.Request, route: Route) -> Message:
    kind = route.rpc.input_type
    parameters = query_string.parse_parameters(request.rel_url.raw_query_string)
    in_path = [(kind.fields_by_name[name].json_name, value) for name, value in request.match_info.items()]
    if route.has_body:
        if parameters:
            raise InvalidRequest.of(parameters[0][0], "belongs in the JSON body")
        message = json_body.decode_body(await read_body(request), kind)
        message.MergeFrom(query_string.decode_parameters(in_path, kind))
        return message
    resumed = next((name for field, name in RESUMED_BY.items() if field in kind.fields_by_name), None)
    if resumed and (last_id := read_single_header(request, LAST_EVENT_ID) or dict(parameters).get(LAST_EVENT_ID_QUERY)):
        # It takes precedence because a browser reconnects with the old URL.
        parameters = [(name, value) for name, value in parameters if name not in (resumed, LAST_EVENT_ID_QUERY)]
        try:
            resuming = query_string.decode_parameters([(resumed, last_id)], kind)
        except InvalidRequest as error:
            raise InvalidRequest.of(LAST_EVENT_ID, error.metadata["rule"]) from error
        message = query_string.decode_parameters(in_path + parameters, kind)
        message.MergeFrom(resuming)
        return message
    return query_string.decode_parameters(in_path + parameters, kind)


CHAT_ID = "X-Chat-Id"
"""Header with the file's chat, for clients that read only the reference in the answer's `data`."""


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
