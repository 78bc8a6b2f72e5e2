"""The routes of A2A: JSON-RPC at /a2a/{agent}, HTTP+JSON below it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import grpc
from aiohttp import web

from headrace.errors import HeadraceError, from_rpc_error
from headrace.v1 import common_pb2
from services.facade.a2a.card import build_card
from services.facade.a2a.message import parse_message
from services.facade.a2a.protocol import (
    BAD_PARAMS,
    BAD_REQUEST,
    NO_EXTENDED_CARD,
    NO_METHOD,
    NO_PUSH,
    A2aError,
    Call,
    ErrorKind,
    check_version,
    convert_error,
    parse_object,
    parse_rpc,
)
from services.facade.a2a.task_view import TaskView
from services.facade.a2a.tasks import Tasks
from services.facade.faces.published import PublishedAgents
from services.facade.middleware.request_lifecycle import has_begun
from services.facade.requests.body import read_body, read_single_header
from services.facade.responses import envelope
from services.facade.responses.frame_writer import FrameWriter, StreamTimeouts
from services.facade.responses.sse import send_stream

FACE = "a2a"

LAST_EVENT_ID = "Last-Event-ID"

_REST = {
    ("POST", "message:send"): "SendMessage",
    ("POST", "message:stream"): "SendStreamingMessage",
    ("GET", "tasks"): "ListTasks",
    ("GET", "extendedAgentCard"): "GetExtendedAgentCard",
}
_REST_TASK = {("GET", ""): "GetTask", ("POST", ":cancel"): "CancelTask", ("POST", ":subscribe"): "SubscribeToTask"}
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}(:\d{1,5})?|\[[0-9a-fA-F:]+\](:\d{1,5})?", re.ASCII)
_TASK_PATH = re.compile(r"tasks/([^/:]+)(:[a-z]+)?(/pushNotificationConfigs.*)?")

PUSH = frozenset(f"{verb}TaskPushNotificationConfig" for verb in ("Create", "Get", "Delete")) | {
    "ListTaskPushNotificationConfigs"
}
STREAMING = frozenset({"SendStreamingMessage", "SubscribeToTask"})


def add_routes(
    application: web.Application,
    peers: Mapping[str, grpc.aio.Channel],
    timeouts: StreamTimeouts,
    published_faces: frozenset[str],
) -> None:
    published = PublishedAgents(peers["orchestrator"], FACE, published_faces)
    handlers = _A2aHandlers(published, Tasks(peers["orchestrator"], peers["memory"]), timeouts)
    router = application.router
    router.add_get("/a2a", handlers.list_cards)
    router.add_get("/a2a/{agent}/.well-known/agent-card.json", handlers.get_card)
    router.add_post("/a2a/{agent}", handlers.answer_rpc)
    router.add_route("*", "/a2a/{agent}/{operation:.+}", handlers.answer_rest)


class _A2aHandlers:
    def __init__(self, published: PublishedAgents, tasks: Tasks, timeouts: StreamTimeouts) -> None:
        self._published = published
        self._tasks = tasks
        self._timeouts = timeouts

    async def list_cards(self, request: web.Request) -> web.StreamResponse:
        cards = [build_card(agent, _make_url(request, agent.key)) for agent in await self._published.list_agents()]
        return web.json_response({"agentCards": cards})

    async def get_card(self, request: web.Request) -> web.StreamResponse:
        agent = await self._published.get_agent(request.match_info["agent"])
        return web.json_response(build_card(agent, _make_url(request, agent.key)))

    async def answer_rpc(self, request: web.Request) -> web.StreamResponse:
        async def read_call() -> Call:
            return parse_rpc(await read_body(request))

        return await self._answer(request, Call("", {}, is_rpc=True), read_call)

    async def answer_rest(self, request: web.Request) -> web.StreamResponse:
        async def read_call() -> Call:
            return await _read_rest(request)

        return await self._answer(request, Call("", {}), read_call)

    async def _answer(
        self, request: web.Request, call: Call, read_call: Callable[[], Awaitable[Call]]
    ) -> web.StreamResponse:
        try:
            agent = await self._published.get_agent(request.match_info["agent"])
            call = await read_call()
            check_version(request)
            return await self._carry_out(request, agent.key, call)
        except (A2aError, HeadraceError, grpc.aio.AioRpcError) as error:
            if has_begun(request):
                raise  # it was told in the stream
            return call.refuse(_convert_failure(error))

    async def _carry_out(self, request: web.Request, agent_key: str, call: Call) -> web.StreamResponse:
        params = call.params
        if call.method in STREAMING:
            return await self._stream(request, agent_key, call)
        match call.method:
            case "SendMessage":
                view = TaskView()
                await self._tasks.send_message(agent_key, parse_message(params), view)
                return call.respond({"task": view.build_task()})
            case "GetTask":
                return call.respond(await self._tasks.get_task(agent_key, params.get("id")))
            case "CancelTask":
                return call.respond(await self._tasks.cancel_task(agent_key, params.get("id")))
            case "ListTasks":
                return call.respond(await self._tasks.list_tasks(agent_key, params))
            case "GetExtendedAgentCard":
                raise A2aError(NO_EXTENDED_CARD, "there is one card, for callers with a credential")
            case _ if call.method in PUSH:
                raise A2aError(NO_PUSH, "push notifications of tasks are not served; webhooks of Headrace are")
            case _:
                raise A2aError(NO_METHOD, f"no method {call.method[:64]!r}")

    async def _stream(self, request: web.Request, agent_key: str, call: Call) -> web.StreamResponse:
        writer = FrameWriter(request, self._timeouts)
        known_seq = _read_cursor(request) if call.method == "SubscribeToTask" else 0
        head, tail = _split_frame(call)
        view = _StreamedView(writer, head, tail, known_seq)

        async def follow() -> None:
            if call.method == "SubscribeToTask":
                await self._tasks.subscribe(agent_key, call.params.get("id"), view)
            else:
                await self._tasks.send_message(agent_key, parse_message(call.params), view)
            if not view.is_over:
                view.send_status(view.fold.last_seq)

        def encode_failure(failure: common_pb2.Failure) -> bytes:
            return b"data: %b\n\n" % call.encode_error(A2aError(_find_kind(failure.code), failure.message))

        return await send_stream(writer, follow(), encode_failure, tells_breaks=True)


class _StreamedView(TaskView):
    def __init__(self, writer: FrameWriter, head: bytes, tail: bytes, known_seq: int) -> None:
        self._writer = writer
        self._frame_head, self._frame_tail = head, tail
        super().__init__(self._send_frame, known_seq)

    def _send_frame(self, event: bytes, seq: int) -> bool:
        return self._writer.send_frame(b"id: %d\ndata: %b%b%b\n\n" % (seq, self._frame_head, event, self._frame_tail))

    async def wait_until_ready(self) -> None:
        if self._writer.has_frames:
            await self._writer.wait_until_drained()


def _split_frame(call: Call) -> tuple[bytes, bytes]:
    """Return what stands around each event of a stream."""
    return tuple(call.encode_result({"": 0}).split(b'{"":0}'))  # pyright: ignore[reportReturnType]


async def _read_rest(request: web.Request) -> Call:
    operation = request.match_info["operation"]
    if found := _TASK_PATH.fullmatch(operation):
        method = next(iter(PUSH)) if found[3] else _REST_TASK.get((request.method, found[2] or ""))
        params: dict[str, Any] = {"id": found[1]}
    else:
        method, params = _REST.get((request.method, operation)), {}
    if method is None:
        raise A2aError(NO_METHOD, f"no operation {request.method} {operation[:128]}")
    if method.startswith("Send"):
        return Call(method, parse_object(await read_body(request)))
    query: dict[str, Any] = dict(request.query)
    if "pageSize" in query:
        if not query["pageSize"].isascii() or not query["pageSize"].isdigit():
            raise A2aError(BAD_PARAMS, "pageSize: must be a whole number")
        query["pageSize"] = int(query["pageSize"])
    if "includeArtifacts" in query:
        query["includeArtifacts"] = query["includeArtifacts"] == "true"
    return Call(method, query | params)


def _read_cursor(request: web.Request) -> int:
    given = read_single_header(request, LAST_EVENT_ID) or "0"
    if not (given.isascii() and given.isdigit() and len(given) <= 18):
        raise A2aError(BAD_PARAMS, f"{LAST_EVENT_ID}: must be the id of an event of this task")
    return int(given)


def _make_url(request: web.Request, agent_key: str) -> str:
    scheme = request.headers.get("X-Forwarded-Proto", request.scheme)
    host = request.headers.get("X-Forwarded-Host", request.host)
    host = host if _HOST.fullmatch(host) else request.host
    return f"{'https' if scheme == 'https' else 'http'}://{host}/a2a/{agent_key}"


def _convert_failure(error: A2aError | HeadraceError | grpc.aio.AioRpcError) -> A2aError:
    if isinstance(error, grpc.aio.AioRpcError):
        known = from_rpc_error(error)
        if known is None:
            failure = envelope.describe_error(error)
            return A2aError(_find_kind(failure.code), failure.message)
        return convert_error(known)
    return convert_error(error) if isinstance(error, HeadraceError) else error


def _find_kind(reason: str) -> ErrorKind:
    return ErrorKind(-32603, 500, "INTERNAL", reason) if reason != "INVALID_REQUEST" else BAD_REQUEST
