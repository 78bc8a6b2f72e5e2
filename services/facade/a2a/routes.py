"""A2A's HTTP routes: JSON-RPC at /a2a/{agent}, HTTP+JSON below it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import HeadraceError
from headrace.v1 import agent_pb2, common_pb2
from services.facade.a2a.message import is_uuid
from services.facade.a2a.operations import STREAMING, Operations
from services.facade.a2a.protocol import (
    BAD_PARAMS,
    CURSOR,
    EXTENSIONS_HEADER,
    LAST_EVENT_ID,
    VERSION,
    VERSION_HEADER,
    A2aError,
    Call,
    asks_for_cursors,
    check_version,
    convert_failure,
    find_kind,
    parse_context_cursor,
    parse_cursor,
    parse_rpc,
    read_json,
)
from services.facade.a2a.rest_paths import read_rest_call
from services.facade.a2a.task_view import ANSWER, ContextSink, TaskView
from services.facade.adapters.runs import AdapterRuns, FollowedChats, PublishedAgents
from services.facade.middleware.request_lifecycle import has_begun
from services.facade.requests.body import read_single_header
from services.facade.responses.frame_writer import FrameWriter, StreamTimeouts
from services.facade.responses.sse import send_stream
from services.facade.responses.stream_errors import ErrorEncoder
from services.runtime.rpc.push_stream import Watches

ADAPTER = "a2a"

CARD_CACHE = "private, max-age=60"
"""Caches are private because visibility depends on the caller; cards change with their agents' files."""

_HOST = re.compile(r"([A-Za-z0-9.-]{1,253}|\[[0-9a-fA-F:]+\])(:\d{1,5})?", re.ASCII)

_PREFIX = re.compile(r"(/[\w.~-]{1,64}){1,8}/?", re.ASCII)


def add_routes(
    application: web.Application,
    peers: Mapping[str, grpc.aio.Channel],
    timeouts: StreamTimeouts,
    published: PublishedAgents,
    watches: Watches,
    *,
    grpc_address: str,
) -> None:
    """Add A2A's HTTP routes.

    `grpc_address` is the address of the gRPC binding as host:port; `:port` means the host of the card's own
    URL, and an empty string means that there is no gRPC binding.
    """
    followed = FollowedChats(peers["orchestrator"], AdapterRuns(peers["orchestrator"]), watches)
    handlers = _A2aHandlers(published, Operations.from_peers(peers), followed, timeouts, grpc_address)
    router = application.router
    router.add_get("/a2a", handlers.list_cards)
    router.add_get("/a2a/{agent}/.well-known/agent-card.json", handlers.get_card)
    router.add_post("/a2a/{agent}", handlers.answer_rpc)
    router.add_post("/a2a/{agent}/", handlers.answer_rpc)  # some clients append a slash to the base URL
    router.add_route("*", "/a2a/{agent}/{operation:.+}", handlers.answer_rest)


class _A2aHandlers:
    def __init__(
        self,
        published: PublishedAgents,
        operations: Operations,
        followed: FollowedChats,
        timeouts: StreamTimeouts,
        grpc_address: str,
    ) -> None:
        self._published = published
        self._operations = operations
        self._followed = followed
        self._timeouts = timeouts
        self._grpc_address = grpc_address

    async def list_cards(self, request: web.Request) -> web.StreamResponse:
        agents = await self._published.list_agents()
        addresses = self._find_grpc_address(request)
        cards = [build_card(agent, _make_url(request, agent.key), addresses) for agent in agents]
        return web.json_response({"agentCards": cards})

    async def get_card(self, request: web.Request) -> web.StreamResponse:
        agent = await self._published.get_agent(request.match_info["agent"])
        card = build_card(agent, _make_url(request, agent.key), self._find_grpc_address(request))
        response = web.json_response(card, headers={"Cache-Control": CARD_CACHE})
        response.etag = hashlib.sha256(orjson.dumps(card)).hexdigest()[:32]
        known = request.if_none_match or ()
        return web.Response(status=304, headers=response.headers) if response.etag in known else response

    def _find_grpc_address(self, request: web.Request) -> str:
        if not self._grpc_address.startswith(":"):
            return self._grpc_address
        match = _HOST.fullmatch(_find_host(request))
        return f"{match[1] if match else '127.0.0.1'}{self._grpc_address}"

    async def answer_rpc(self, request: web.Request) -> web.StreamResponse:
        async def read_call() -> Call:
            return parse_rpc(await read_json(request))

        return await self._answer(request, Call("", {}, is_rpc=True), read_call)

    async def answer_rest(self, request: web.Request) -> web.StreamResponse:
        async def read_call() -> Call:
            return await read_rest_call(request)

        return await self._answer(request, Call("", {}), read_call)

    async def _answer(
        self, request: web.Request, call: Call, read_call: Callable[[], Awaitable[Call]]
    ) -> web.StreamResponse:
        try:
            agent = await self._published.get_agent(request.match_info["agent"])
            call = await read_call()
            check_version(request.headers.get(VERSION_HEADER))
            if call.method == "SubscribeToContext" and call.is_rpc:
                return await self._follow_context(request, agent.key, call)
            if call.method in STREAMING:
                return await self._stream(request, agent.key, call)
            return call.respond(
                await self._operations.answer_call(agent.key, call.method, call.params, _find_base(request))
            )
        except (A2aError, HeadraceError, grpc.aio.AioRpcError) as error:
            if has_begun(request):
                raise  # the stream has reported it
            return call.refuse(convert_failure(error))

    async def _stream(self, request: web.Request, agent_key: str, call: Call) -> web.StreamResponse:
        writer = FrameWriter(request, self._timeouts)
        is_subscription = call.method == "SubscribeToTask"
        known_seq = parse_cursor(read_single_header(request, LAST_EVENT_ID)) if is_subscription else 0
        has_cursors = asks_for_cursors(request.headers.get(EXTENSIONS_HEADER))
        view = TaskView(JsonEvents(writer, call, has_cursors=has_cursors), known_seq, base_url=_find_base(request))
        sending = self._operations.follow_task(agent_key, call.method, call.params, view)
        return await send_stream(writer, sending, _make_encoder(call), tells_breaks=True)

    async def _follow_context(self, request: web.Request, agent_key: str, call: Call) -> web.StreamResponse:
        context_id, writer = call.params.get("contextId"), FrameWriter(request, self._timeouts)
        if not (isinstance(context_id, str) and is_uuid(context_id)):
            raise A2aError(BAD_PARAMS, "contextId: must be that of a task")
        cursor = parse_context_cursor(read_single_header(request, LAST_EVENT_ID))
        has_cursors = asks_for_cursors(request.headers.get(EXTENSIONS_HEADER))

        def make_events(n: str) -> JsonEvents:
            return JsonEvents(writer, call, has_cursors=has_cursors, n=n)

        sink = ContextSink(make_events, cursor, _find_base(request))
        sending = self._followed.follow(context_id, f"{cursor.n}.0", [agent_key], sink.take)
        return await send_stream(writer, sending, _make_encoder(call), tells_breaks=True)


def _make_encoder(call: Call) -> ErrorEncoder:
    def encode_failure(failure: common_pb2.Failure) -> bytes:
        return b"data: %b\n\n" % call.encode_error(A2aError(find_kind(failure.code), failure.message))

    return encode_failure


def _make_url(request: web.Request, agent_key: str) -> str:
    return f"{_find_base(request)}/a2a/{agent_key}"


def _find_base(request: web.Request) -> str:
    scheme, prefix = _read_forwarded(request, "Proto").lower() or request.scheme, _read_forwarded(request, "Prefix")
    prefix = prefix.rstrip("/") if _PREFIX.fullmatch(prefix) else ""
    return f"{'https' if scheme == 'https' else 'http'}://{_find_host(request)}{prefix}"


def _find_host(request: web.Request) -> str:
    host = _read_forwarded(request, "Host")
    return host if _HOST.fullmatch(host) else request.host


def _read_forwarded(request: web.Request, part: str) -> str:
    """Return what the first of several proxies has given."""
    return request.headers.get(f"X-Forwarded-{part}", "").partition(",")[0].strip()


class JsonEvents:
    """Writes a task's events as SSE frames; with cursors on, each update's metadata repeats the frame's id."""

    def __init__(self, writer: FrameWriter, call: Call, *, has_cursors: bool, n: str = "") -> None:
        """`n` is the task's number in a followed context; empty when one task is streamed."""
        self._n = f"{n}.".encode() if n else b""
        self._writer = writer
        self._head, self._tail = call.encode_result({"": 0}).split(b'{"":0}')
        self._has_cursors = has_cursors
        self._piece_head = b""
        """JSON before the text of each piece; only text and cursor differ between pieces."""

    def send_event(self, event: dict[str, Any], seq: int) -> bool:
        if self._has_cursors:
            event = {kind: value | {"metadata": {CURSOR: f"{self._n.decode()}{seq}"}} for kind, value in event.items()}
        return self._send_frame(orjson.dumps(event), seq)

    def send_piece(self, ids: dict[str, str], text: str, seq: int, *, append: bool) -> bool:
        if not self._piece_head:
            known = orjson.dumps(ids)[:-1]
            self._piece_head = b'{"artifactUpdate":%b,"artifact":{"artifactId":"%b","parts":[{"text":' % (
                known,
                ANSWER.encode(),
            )
        word = b"true" if append else b"false"
        cursor = b',"metadata":{"%b":"%b%d"}' % (CURSOR.encode(), self._n, seq) if self._has_cursors else b""
        return self._send_frame(b'%b%b}]},"append":%b%b}}' % (self._piece_head, orjson.dumps(text), word, cursor), seq)

    def _send_frame(self, event: bytes, seq: int) -> bool:
        return self._writer.send_frame(b"id: %b%d\ndata: %b%b%b\n\n" % (self._n, seq, self._head, event, self._tail))

    async def wait_until_drained(self) -> None:
        if self._writer.has_frames:
            await self._writer.wait_until_drained()


MODES = ["text/plain", "application/json"]

FILE_MODES = ["image/png", "image/jpeg", "image/gif", "image/webp", "audio/wav", "audio/mpeg", "application/pdf"]
"""Types that models accept as input; any other file is stored in the chat."""


def build_card(agent: agent_pb2.Agent, url: str, grpc_address: str = "") -> dict[str, Any]:
    """Return an agent's card.

    `url` is the JSON-RPC endpoint and the prefix of the HTTP+JSON paths. `grpc_address` serves all agents; a
    caller selects one by sending its key as `tenant`.
    """
    interfaces: list[dict[str, Any]] = [
        {"url": url, "protocolBinding": binding, "protocolVersion": VERSION} for binding in ("JSONRPC", "HTTP+JSON")
    ]
    if grpc_address:
        served = {"url": grpc_address, "protocolBinding": "GRPC", "tenant": agent.key, "protocolVersion": VERSION}
        interfaces.append(served)
    skill: dict[str, Any] = {
        "id": agent.key,
        "name": agent.name,
        "description": agent.description or agent.name,
        "tags": [agent.mode.lower()],
        "examples": [*agent.questions],
    }
    extension = {
        "uri": CURSOR,
        "description": "Events have cursors; SubscribeToTask takes one as Last-Event-ID, as does SubscribeToContext.",
    }
    return {
        "name": agent.name,
        "description": agent.description or agent.name,
        "version": version("headrace"),
        "supportedInterfaces": interfaces,
        "capabilities": {"streaming": True, "pushNotifications": True, "extensions": [extension]},
        "securitySchemes": {
            "bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}},
            "apiKey": {"apiKeySecurityScheme": {"location": "header", "name": "X-API-Key"}},
        },
        "defaultInputModes": [*MODES, *FILE_MODES],
        "defaultOutputModes": MODES,
        "skills": [skill],
    }
