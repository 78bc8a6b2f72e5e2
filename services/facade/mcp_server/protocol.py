"""JSON-RPC and MCP's versions: one request per POST, no state between requests.

Versions up to 2025-11-25 start with a handshake, and the session id encodes the client's capabilities. From
2026-07-28 on, each request carries version and capabilities.
https://modelcontextprotocol.io/specification/2026-07-28
"""

from __future__ import annotations

import base64
import re
import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from headrace.errors import HeadraceError, InvalidRequest, NotFound
from services.runtime.formats.json_form import JSON_DEPTH_MAX, measure_json_depth

MODERN = "2026-07-28"
HANDSHAKE = ("2025-11-25", "2025-06-18", "2025-03-26")

SESSION_ID = "Mcp-Session-Id"
VERSION = "MCP-Protocol-Version"

META_VERSION = "io.modelcontextprotocol/protocolVersion"
META_CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
META_SERVER = "io.modelcontextprotocol/serverInfo"

TASKS = "io.modelcontextprotocol/tasks"
"""The tasks extension, which is part of the protocol in 2025-11-25."""

PARSE_ERROR, BAD_REQUEST, NO_METHOD, BAD_PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
NO_RESOURCE, HEADER_MISMATCH, NO_CAPABILITY, BAD_VERSION = -32002, -32020, -32021, -32022
OTHER = -32000

STATUS = {
    PARSE_ERROR: 400,
    BAD_REQUEST: 400,
    BAD_PARAMS: 400,
    HEADER_MISMATCH: 400,
    NO_CAPABILITY: 400,
    BAD_VERSION: 400,
    NO_METHOD: 404,
}
"""HTTP statuses of errors in MODERN; earlier versions answer 200."""

_NAMED = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
}
_SESSION = re.compile(r"hr-(e?)-[0-9a-f]{32}")


class McpError(Exception):
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.message, self.data = code, message, data


@dataclass(frozen=True, slots=True)
class Message:
    """A request, a notification, or a response to a request of ours."""

    method: str
    """Empty for a response."""

    id: str | float | None = None
    params: dict[str, Any] = field(default_factory=dict[str, Any])
    result: dict[str, Any] = field(default_factory=dict[str, Any])
    is_modern: bool = False
    can_elicit: bool = False
    """Whether the client can ask its user for input."""

    knows_tasks: bool = False
    """Whether the client declares the tasks extension or uses the version that includes it."""

    @property
    def progress_token(self) -> str | int | None:
        return self.params.get("_meta", {}).get("progressToken")


def decode_body(body: bytes) -> dict[str, Any]:
    """Return the JSON-RPC message in a POST body, with its id checked; McpError names the problem."""
    try:
        given = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise McpError(PARSE_ERROR, f"the body is not JSON: {error.msg}") from None
    if not isinstance(given, dict) or given.get("jsonrpc") != "2.0" or measure_json_depth(given) > JSON_DEPTH_MAX:
        raise McpError(BAD_REQUEST, "the body must be one JSON-RPC 2.0 message")
    if not isinstance(given.get("id", ""), (str, int, float)):
        raise McpError(BAD_REQUEST, "id must be text or a number")
    return given


def parse_message(request: web.Request, given: dict[str, Any]) -> Message:
    """Parse the result of `decode_body`; McpError names the problem."""
    method, params = given.get("method", ""), given.get("params") or {}
    meta = (params.get("_meta") or {}) if isinstance(params, dict) else None
    if not isinstance(method, str) or not isinstance(params, dict) or not isinstance(meta, dict):
        raise McpError(BAD_REQUEST, "method must be text, and params and params._meta must be objects")
    if META_VERSION in meta:
        _check_modern(request, method, params, meta)
        declared = meta[META_CAPABILITIES] if isinstance(meta[META_CAPABILITIES], dict) else {}
        extensions = declared.get("extensions")
        return Message(
            method,
            given.get("id"),
            params,
            is_modern=True,
            can_elicit="elicitation" in declared,
            knows_tasks=isinstance(extensions, dict) and TASKS in extensions,
        )
    version = request.headers.get(VERSION, HANDSHAKE[0])
    if version == MODERN and method and "id" in given:
        raise McpError(BAD_PARAMS, f"params._meta must have {META_VERSION!r} and {META_CAPABILITIES!r}")
    if version not in (*HANDSHAKE, MODERN):
        raise _make_version_error(version)
    session = _SESSION.fullmatch(request.headers.get(SESSION_ID, ""))
    result = given.get("result") if isinstance(given.get("result"), dict) else {"action": "cancel"}
    can_elicit, knows_tasks = bool(session and session[1]), version == HANDSHAKE[0]
    return Message(method, given.get("id"), params, result or {}, can_elicit=can_elicit, knows_tasks=knows_tasks)


def _check_modern(request: web.Request, method: str, params: dict[str, Any], meta: dict[str, Any]) -> None:
    version = meta[META_VERSION]
    if META_CAPABILITIES not in meta or not isinstance(version, str):
        raise McpError(BAD_PARAMS, f"params._meta must have {META_VERSION!r}, which is text, and {META_CAPABILITIES!r}")
    name = params.get(_NAMED.get(method, ""))
    headers = ((VERSION, version), ("Mcp-Method", method), ("Mcp-Name", name))
    for header, value in headers:
        if value is not None and _decode_header(request.headers.get(header, "")) != value:
            raise McpError(HEADER_MISMATCH, f"{header} does not match the body")
    if version != MODERN:
        raise _make_version_error(version)


def _decode_header(value: str) -> str:
    """Decode the form =?base64?…?= of a value that a header cannot hold; return any other value unchanged."""
    if value.startswith("=?base64?") and value.endswith("?="):
        with suppress(ValueError):
            return base64.b64decode(value[9:-2]).decode(errors="replace")
    return value


def _make_version_error(version: str) -> McpError:
    supported = [MODERN, *HANDSHAKE]
    return McpError(BAD_VERSION, f"protocol version {version[:32]!r}", {"supported": supported, "requested": version})


def make_session_id(*, can_elicit: bool) -> str:
    return f"hr-{'e' if can_elicit else ''}-{uuid.uuid4().hex}"


def build_result(message: Message, result: dict[str, Any], server: dict[str, Any]) -> bytes:
    if message.is_modern:
        result = {"resultType": "complete", "_meta": {META_SERVER: server}} | result
    return orjson.dumps({"jsonrpc": "2.0", "id": message.id, "result": result})


def build_error(message_id: str | float | None, error: McpError) -> bytes:
    body: dict[str, Any] = {"code": error.code, "message": error.message}
    body |= {"data": error.data} if error.data is not None else {}
    return orjson.dumps({"jsonrpc": "2.0", "id": message_id, "error": body})


def convert_error(error: HeadraceError) -> McpError:
    """Return the MCP error for one of ours, with our reason in its data."""
    code = BAD_PARAMS if isinstance(error, (InvalidRequest, NotFound)) else OTHER
    data = {"reason": error.reason, "retriable": error.retriable, "details": error.metadata}
    return McpError(code, error.message, data)
