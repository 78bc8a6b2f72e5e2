"""A2A's operations as HTTP requests and back, in the two forms that are spoken: JSON-RPC and HTTP+JSON."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson
from google.protobuf import json_format

from headrace.errors import RemoteBadAnswer
from services.orchestrator.peers.remote.card import Interface, M, read_json
from services.orchestrator.peers.remote.faults import AUTH_REQUIRED, TASK_NOT_FOUND, UNSUPPORTED, Refused

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
"""What HTTP says where no reason stands in the answer."""

PATHS = {
    "SendMessage": ("POST", "/message:send"),
    "SendStreamingMessage": ("POST", "/message:stream"),
    "GetTask": ("GET", "/tasks/{id}"),
    "CancelTask": ("POST", "/tasks/{id}:cancel"),
    "SubscribeToTask": ("GET", "/tasks/{id}:subscribe"),
}

RPC_ID = "1"
"""One request goes over a connection, so its id need tell it from no other."""


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
    """Return what an operation was answered with.

    Raises:
        Refused: With an error.
        RemoteBadAnswer: With something else.
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
    """Return the error that an answer of this status, which is none of success, has.

    Raises:
        RemoteBadAnswer: It has none of the protocol.
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
        given = orjson.loads(data)
    except orjson.JSONDecodeError:
        given = None
    if not isinstance(given, dict):
        raise RemoteBadAnswer(f"{interface.host} said something that is no JSON object", remote=interface.host)
    return given


def _make_refused(error: dict[str, Any], status: int = 0) -> Refused:
    code, message = error.get("code"), error.get("message")
    details = error.get("details", error.get("data"))
    infos = [one["reason"] for one in _as_list(details) if isinstance(one, dict) and "reason" in one]
    reason = infos[0] if infos and isinstance(infos[0], str) else ""
    if not reason and isinstance(code, int):
        reason = REASONS.get(code) or STATUSES.get(status) or str(code)
    return Refused(reason[:64] or "ERROR", message if isinstance(message, str) else "")


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
