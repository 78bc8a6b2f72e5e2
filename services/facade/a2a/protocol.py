"""A2A's versions, errors and cursors, and its two HTTP bindings, JSON-RPC and HTTP+JSON.

Objects are the messages of lf.a2a.v1 in protobuf's JSON form.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import grpc
import orjson
from aiohttp import web

from headrace.errors import HeadraceError, NotFound, from_rpc_error
from services.facade.requests.body import has_type, read_body
from services.facade.responses import envelope
from services.runtime.formats.chat_cursor import ChatCursor
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth

VERSION = "1.0"
_WORD_BREAK = re.compile(r"(?<=[a-z])_([a-z])")

MEDIA_TYPES = ("application/json", "application/a2a+json")
"""Accepted request types; the specification gives the first to JSON-RPC and the second to HTTP+JSON, but
clients mix them.
"""

VERSION_HEADER = "A2A-Version"
EXTENSIONS_HEADER = "A2A-Extensions"

CURSOR = "urn:headrace:cursor:1"
"""URI of our extension: streamed events carry cursors, and a subscription with Last-Event-ID resumes after one.

It adds one JSON-RPC method: SubscribeToContext {contextId} streams the events of all tasks of a context,
including tasks that start later. Its cursors are valid for the whole context.
"""

LAST_EVENT_ID = "Last-Event-ID"

ERROR_INFO = "type.googleapis.com/google.rpc.ErrorInfo"
DOMAIN = "a2a-protocol.org"


@dataclass(frozen=True, slots=True)
class ErrorKind:
    code: int
    """JSON-RPC error code."""
    status: int
    """HTTP status."""
    name: str
    """Name in google.rpc.Code."""
    reason: str


PARSE_ERROR = ErrorKind(-32700, 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
BAD_REQUEST = ErrorKind(-32600, 400, "INVALID_ARGUMENT", "INVALID_REQUEST")
NO_METHOD = ErrorKind(-32601, 404, "NOT_FOUND", "METHOD_NOT_FOUND")
BAD_PARAMS = ErrorKind(-32602, 400, "INVALID_ARGUMENT", "INVALID_PARAMS")
NO_TASK = ErrorKind(-32001, 404, "NOT_FOUND", "TASK_NOT_FOUND")
NOT_CANCELABLE = ErrorKind(-32002, 409, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")
NO_PUSH = ErrorKind(-32003, 400, "UNIMPLEMENTED", "PUSH_NOTIFICATION_NOT_SUPPORTED")
UNSUPPORTED = ErrorKind(-32004, 400, "UNIMPLEMENTED", "UNSUPPORTED_OPERATION")
NO_CONTENT_TYPE = ErrorKind(-32005, 415, "INVALID_ARGUMENT", "CONTENT_TYPE_NOT_SUPPORTED")
NO_EXTENDED_CARD = ErrorKind(-32007, 400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED")
NO_VERSION = ErrorKind(-32009, 400, "UNIMPLEMENTED", "VERSION_NOT_SUPPORTED")


class A2aError(Exception):
    def __init__(self, kind: ErrorKind, message: str, metadata: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.kind, self.message, self.metadata = kind, message, metadata or {}

    @property
    def details(self) -> list[dict[str, Any]]:
        info = {"@type": ERROR_INFO, "reason": self.kind.reason, "domain": DOMAIN}
        return [info | ({"metadata": self.metadata} if self.metadata else {})]


def convert_error(error: HeadraceError) -> A2aError:
    """Return the A2A error for one of ours; without an A2A equivalent, it is an internal error with our reason."""
    metadata = {"reason": error.reason, "retriable": str(error.retriable).lower()} | dict(error.metadata)
    if isinstance(error, NotFound):
        return A2aError(NO_TASK, error.message, metadata)
    status = envelope.HTTP_STATUS[error.code]
    if status == 400:
        return A2aError(BAD_PARAMS, error.message, metadata)
    return A2aError(ErrorKind(-32603, status, error.code.name, error.reason), error.message, metadata)


def convert_failure(error: A2aError | HeadraceError | grpc.aio.AioRpcError) -> A2aError:
    if isinstance(error, grpc.aio.AioRpcError):
        known = from_rpc_error(error)
        if known is None:
            failure = envelope.describe_error(error)
            return A2aError(find_kind(failure.code), failure.message)
        return convert_error(known)
    return convert_error(error) if isinstance(error, HeadraceError) else error


def find_kind(reason: str) -> ErrorKind:
    return ErrorKind(-32603, 500, "INTERNAL", reason) if reason != "INVALID_REQUEST" else BAD_REQUEST


def parse_cursor(given: str | None) -> int:
    """Return the sequence number after which a subscription resumes; 0 means from the beginning."""
    text = given or "0"
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise A2aError(BAD_PARAMS, f"{LAST_EVENT_ID}: must be the id of an event of this task")
    return int(text)


def parse_context_cursor(given: str | None) -> ChatCursor:
    """Return the cursor after which a subscription to a context resumes."""
    if (cursor := ChatCursor.parse(given or "")) is None:
        raise A2aError(BAD_PARAMS, f"{LAST_EVENT_ID}: must be the id of an event of this context, such as '12.34'")
    return cursor


def asks_for_cursors(given: str | None) -> bool:
    """Return whether the A2A-Extensions header activates the cursor extension."""
    return CURSOR in [uri.strip() for uri in (given or "").split(",")]


@dataclass(frozen=True, slots=True)
class Call:
    """One operation, independent of the HTTP binding."""

    method: str
    params: dict[str, Any]
    id: Any = None
    """JSON-RPC request id."""

    is_rpc: bool = False

    def encode_result(self, result: dict[str, Any]) -> bytes:
        return orjson.dumps({"jsonrpc": "2.0", "id": self.id, "result": result} if self.is_rpc else result)

    def encode_error(self, error: A2aError) -> bytes:
        if self.is_rpc:
            body = {"code": error.kind.code, "message": error.message, "data": error.details}
            return orjson.dumps({"jsonrpc": "2.0", "id": self.id, "error": body})
        status = {"code": error.kind.status, "status": error.kind.name, "message": error.message}
        return orjson.dumps({"error": status | {"details": error.details}})

    def respond(self, result: dict[str, Any]) -> web.Response:
        return _json_response(self.encode_result(result))

    def refuse(self, error: A2aError) -> web.Response:
        return _json_response(self.encode_error(error), 200 if self.is_rpc else error.kind.status)


def parse_rpc(body: bytes) -> Call:
    """Parse a JSON-RPC request; A2aError names the problem."""
    given = parse_object(body)
    method, params, message_id = given.get("method"), given.get("params"), given.get("id")
    if given.get("jsonrpc") != "2.0" or not isinstance(method, str) or not isinstance(message_id, (str, int, float)):
        raise A2aError(BAD_REQUEST, "the body must be a JSON-RPC 2.0 request with an id")
    if not isinstance(params, dict | None):
        raise A2aError(BAD_PARAMS, "params: must be an object")
    return Call(method, use_json_names(params or {}), message_id, is_rpc=True)


def use_json_names(given: dict[str, Any]) -> dict[str, Any]:
    """Return the request with JSON field names; protobuf's JSON parsers accept proto field names as well."""
    named = {_WORD_BREAK.sub(lambda found: found[1].upper(), key): value for key, value in given.items()}
    for field in ("message", "configuration", "taskPushNotificationConfig"):
        if isinstance(named.get(field), dict):
            named[field] = use_json_names(named[field])
    if isinstance(parts := named.get("parts"), list):
        named["parts"] = [use_json_names(part) if isinstance(part, dict) else part for part in parts]
    return named


def parse_object(body: bytes) -> dict[str, Any]:
    try:
        given = orjson.loads(body or b"{}")
    except orjson.JSONDecodeError as error:
        raise A2aError(PARSE_ERROR, f"the body is not JSON: {error.msg}") from None
    if not isinstance(given, dict) or measure_json_depth(given) > JSON_DEPTH_MAX:
        raise A2aError(BAD_REQUEST, f"the body must be an object, nested {JSON_DEPTH_MAX} levels at most")
    return given


async def read_json(request: web.Request) -> bytes:
    """Read a request's body; A2aError if its Content-Type is not JSON."""
    if not has_type(request, MEDIA_TYPES):
        raise A2aError(NO_CONTENT_TYPE, f"Content-Type: must be {' or '.join(MEDIA_TYPES)}")
    return await read_body(request, types=MEDIA_TYPES)


def check_version(given: str | None) -> None:
    version = given or VERSION
    if version.split(".")[0] != VERSION.split(".")[0]:
        raise A2aError(NO_VERSION, f"A2A {version[:16]} is not supported; use {VERSION}")


def _json_response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")
