"""A client of A2A 1.0: an agent's card, and its protocol bindings."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar
from urllib.parse import quote

import aiohttp
import orjson
from google.protobuf import json_format
from google.protobuf.message import Message
from yarl import URL

from headrace.a2a import a2a_pb2
from headrace.errors import BadFrame, RemoteBadAnswer, RemoteNotAllowed
from headrace.sse import SseReader
from services.orchestrator.agents.definition.sections import Remote
from services.orchestrator.peers.remote.answers import drop_unread, keep_card_fields, load_answer
from services.orchestrator.peers.remote.http import (
    AUTH_REQUIRED,
    TASK_NOT_FOUND,
    UNSUPPORTED,
    Credentials,
    Http,
    Lost,
    Refused,
    Request,
    check_encoding,
    check_status,
    name_host,
    read_body,
)

CARD_BYTES_MAX = 256 * 1024

VERSIONS = "1."
"""Prefix of the supported protocol versions."""

BINDINGS = ("JSONRPC", "HTTP+JSON")
"""Supported protocol bindings; gRPC is not among them."""

DEPTH_MAX = 60
"""Maximum nesting of JSON; protobuf's parser allows 100, and its errors are not JSON errors."""

M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Interface:
    """Address and binding of a remote agent."""

    url: str
    is_rpc: bool
    tenant: str
    is_streaming: bool

    @property
    def host(self) -> str:
        return name_host(self.url)


def read_json(data: bytes, kind: type[M], host: str) -> M:
    """Parse JSON as a message of the protocol; ignore fields that are unknown or that the client does not read.

    Raises:
        RemoteBadAnswer: It is not such a message.
    """
    try:
        given = load_answer(data)
        if kind is a2a_pb2.AgentCard:
            given = keep_card_fields(given)
        else:
            drop_unread(given)
        return json_format.ParseDict(given, kind(), ignore_unknown_fields=True, max_recursion_depth=DEPTH_MAX)
    except (orjson.JSONDecodeError, json_format.ParseError, RecursionError, TypeError, ValueError, AttributeError):
        name = kind.DESCRIPTOR.name
        raise RemoteBadAnswer(f"{host} sent an answer that is not a {name} of A2A 1.0", remote=host) from None


def choose_interface(remote: Remote, data: bytes) -> Interface:
    """Return a card's first supported interface that the agent's file allows.

    Raises:
        RemoteBadAnswer: It is not a card, or has no supported interface.
        RemoteNotAllowed: All supported interfaces are at hosts that the file does not allow.
    """
    host = name_host(remote.card)
    card = read_json(data, a2a_pb2.AgentCard, host)
    spoken = [*_list_spoken(card)]
    if not spoken:
        offered = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
        wanted = " or ".join(f"{binding} 1.0" for binding in BINDINGS)
        raise RemoteBadAnswer(f"the card of {host} offers no {wanted}, but {offered[:200] or 'nothing'}", remote=host)
    found = next((one for one in spoken if is_allowed(remote, one.url)), None)
    if found is None:
        others = ", ".join(dict.fromkeys(one.host for one in spoken))[:200]
        rule = (
            f"the card of {host} says that its agent is served at {others}; name that in remote.hosts to send it there"
        )
        raise RemoteNotAllowed(rule, remote=host)
    return found


def is_allowed(remote: Remote, url: str) -> bool:
    """Return whether messages and credentials may be sent to a URL.

    The host must be the card's or in `hosts`, and an https card rules out http.
    """
    try:
        card, target = URL(remote.card), URL(url)
    except ValueError:
        return False
    if target.scheme not in ("http", "https") or target.user is not None or not target.host:
        return False
    if card.scheme == "https" and target.scheme != "https":
        return False
    named = {name.lower() for name in remote.hosts}
    host = target.host.lower()
    return host == (card.host or "").lower() or host in named or f"{host}:{target.port}" in named


def _list_spoken(card: a2a_pb2.AgentCard) -> Iterator[Interface]:
    for one in card.supported_interfaces:
        if one.protocol_binding in BINDINGS and one.protocol_version.startswith(VERSIONS):
            is_rpc = one.protocol_binding == "JSONRPC"
            yield Interface(
                one.url.rstrip("/") if not is_rpc else one.url, is_rpc, one.tenant, card.capabilities.streaming
            )


REASONS = {
    -32001: TASK_NOT_FOUND,
    -32002: "TASK_NOT_CANCELABLE",
    -32004: UNSUPPORTED,
    -32005: "CONTENT_TYPE_NOT_SUPPORTED",
    -32009: "VERSION_NOT_SUPPORTED",
    -32600: "INVALID_REQUEST",
    -32601: "METHOD_NOT_FOUND",
    -32602: "INVALID_PARAMS",
    -32603: "INTERNAL_ERROR",
    -32700: "PARSE_ERROR",
}
"""The protocol's codes for JSON-RPC as its reasons (specification 1.0, 5.4)."""

STATUSES = {401: AUTH_REQUIRED, 403: AUTH_REQUIRED, 404: TASK_NOT_FOUND, 501: UNSUPPORTED}
"""Reasons by HTTP status, for responses that state none."""

PATHS = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
}

RPC_ID = "1"
"""Constant, because each connection carries only one request."""


def make_call(interface: Interface, operation: str, request: Any) -> tuple[str, str, bytes | None]:
    """Return HTTP method, URL and body of an operation."""
    if interface.tenant:
        request.tenant = interface.tenant
    params = json_format.MessageToDict(request)
    if interface.is_rpc:
        call = {"jsonrpc": "2.0", "id": RPC_ID, "method": operation, "params": params}
        return "POST", interface.url, orjson.dumps(call)
    method, path = PATHS[operation]
    root = f"{interface.url}/{quote(interface.tenant, safe='')}" if interface.tenant else interface.url
    if "{id}" not in path:
        return method, root + path, orjson.dumps(params)
    url = root + path.replace("{id}", quote(params.pop("id"), safe=""))
    if method == "POST":
        return method, url, orjson.dumps(params)
    return method, url + (f"?historyLength={params['historyLength']}" if "historyLength" in params else ""), None


def read_result(interface: Interface, data: bytes, kind: type[M]) -> M:
    """Return the result of an operation.

    Raises:
        Refused: The agent returned an error.
        RemoteBadAnswer: The response is invalid.
    """
    if not interface.is_rpc:
        return read_json(data, kind, interface.host)
    given = _load_object(interface, data)
    if isinstance(given.get("error"), dict):
        raise _make_refused(given["error"])
    if "result" not in given:
        raise RemoteBadAnswer(f"{interface.host} answered without a result", remote=interface.host)
    return read_json(orjson.dumps(given["result"]), kind, interface.host)


def read_error(interface: Interface, status: int, data: bytes) -> Refused:
    """Return the protocol error in a response with an error status.

    Raises:
        RemoteBadAnswer: The response contains none.
    """
    try:
        error = _load_object(interface, data).get("error")
    except RemoteBadAnswer:
        error = None
    if not isinstance(error, dict):
        raise RemoteBadAnswer(f"{interface.host} answers with {status}", remote=interface.host, status=status)
    return _make_refused(error, status)


def _load_object(interface: Interface, data: bytes) -> dict[str, Any]:
    try:
        given = load_answer(data)
    except orjson.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise RemoteBadAnswer(f"{interface.host} sent an answer that is not a JSON object", remote=interface.host)
    return given


def _make_refused(error: dict[str, Any], status: int = 0) -> Refused:
    code, message = error.get("code"), error.get("message")
    details = error.get("details", error.get("data"))
    details = details if isinstance(details, list) else []
    infos = [one["reason"] for one in details if isinstance(one, dict) and "reason" in one]
    reason = infos[0] if infos and isinstance(infos[0], str) else ""
    if not reason and isinstance(code, int):
        reason = REASONS.get(code) or STATUSES.get(status) or str(code)
    return Refused(reason[:64] or "ERROR", message if isinstance(message, str) else "")


VERSION = "1.0"

EVENT_STREAM = "text/event-stream"

OVERHEAD_BYTES = 64 * 1024
"""Allowance for the rest of a response: ids, history, field names."""

ERROR_BYTES_MAX = 64 * 1024

Event = a2a_pb2.StreamResponse


@dataclass(frozen=True, slots=True)
class RemoteClient:
    """A client of one remote agent.

    Every operation may raise Refused, Lost, RemoteUnavailable, RemoteNotAllowed, RemoteAuthentication and
    RemoteBadAnswer.
    """

    remote: Remote = field(repr=False)
    interface: Interface
    http: Http = field(repr=False)
    credentials: Credentials = field(repr=False)

    @property
    def host(self) -> str:
        return self.interface.host

    async def send(self, message: a2a_pb2.Message) -> AsyncGenerator[Event]:
        """Send a message and yield its events; an agent that does not stream returns its task's state immediately."""
        request = a2a_pb2.SendMessageRequest(message=message)
        request.configuration.accepted_output_modes.extend(("text/plain", "application/json"))
        request.configuration.history_length = 0
        if self.interface.is_streaming:
            async with aclosing(self._stream("SendStreamingMessage", request)) as events:
                async for event in events:
                    yield event
            return
        request.configuration.return_immediately = True
        reply = await self._call("SendMessage", request, a2a_pb2.SendMessageResponse)
        kind = reply.WhichOneof("payload")
        if kind is None:
            raise RemoteBadAnswer(f"{self.host} answered a message with nothing", remote=self.host)
        yield Event(task=reply.task) if kind == "task" else Event(message=reply.message)

    def subscribe(self, task_id: str) -> AsyncGenerator[Event]:
        """Yield a task's state and its further events."""
        return self._stream("SubscribeToTask", a2a_pb2.SubscribeToTaskRequest(id=task_id))

    async def get_task(self, task_id: str, history_length: int = 0) -> a2a_pb2.Task:
        request = a2a_pb2.GetTaskRequest(id=task_id, history_length=history_length)
        return await self._call("GetTask", request, a2a_pb2.Task)

    async def cancel_task(self, task_id: str) -> None:
        await self._call("CancelTask", a2a_pb2.CancelTaskRequest(id=task_id), a2a_pb2.Task)

    @property
    def _bytes_max(self) -> int:
        return self.remote.max_answer_bytes + OVERHEAD_BYTES

    @property
    def _timeout_s(self) -> float:
        return self.remote.request_timeout_ms / 1000

    def _make_request(self, operation: str, params: Any, accept: str) -> Request:
        method, url, body = make_call(self.interface, operation, params)
        headers: Mapping[str, str] = {"A2A-Version": VERSION, **self.credentials.make_headers(self.remote)}
        if body is not None:
            headers = {**headers, "Content-Type": "application/json"}
        return Request(method, url, headers, body, accept)

    async def _call(self, operation: str, params: Any, kind: type[M]) -> M:
        request = self._make_request(operation, params, "application/json")
        status, body = await self.http.fetch(request, self._timeout_s, self._bytes_max)
        if not 200 <= status < 300:
            raise read_error(self.interface, status, body)
        return read_result(self.interface, body, kind)

    async def _stream(self, operation: str, params: Any) -> AsyncGenerator[Event]:
        request = self._make_request(operation, params, EVENT_STREAM)
        async with self.http.open(request, self._timeout_s) as response:
            check_status(response, request.url)
            check_encoding(response, request.url)
            if response.content_type != EVENT_STREAM:
                body = await read_body(response, request.url, self._timeout_s, max(self._bytes_max, ERROR_BYTES_MAX))
                if not 200 <= response.status < 300:
                    raise read_error(self.interface, response.status, body)
                yield read_result(self.interface, body, Event)
                return
            async with aclosing(self._read_frames(response)) as frames:
                async for data in frames:
                    yield read_result(self.interface, data, Event)

    async def _read_frames(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes]:
        reader = SseReader(size_bytes_max=self._bytes_max)
        while piece := await self._read_piece(response):
            try:
                for frame in reader.feed(piece):
                    if frame.data:
                        yield frame.data
            except BadFrame as error:
                raise RemoteBadAnswer(
                    f"an event of {self.host} is too large: {error.message}", remote=self.host
                ) from None

    async def _read_piece(self, response: aiohttp.ClientResponse) -> bytes:
        try:
            # The timeout covers one await, never a yield: time that our caller takes does not count as the agent's
            # silence.
            async with asyncio.timeout(self.remote.silence_timeout_ms / 1000):
                return await response.content.readany()
        except TimeoutError:
            raise Lost(f"{self.host} was silent for too long") from None
