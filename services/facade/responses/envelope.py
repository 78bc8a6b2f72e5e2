"""The envelope of every answer except streams: {"code":0,"msg":"success","data":…}, or a failure.

A failure has the HTTP status of its gRPC code, an empty `data`, and `error` {code, retriable, details}; its
code is the same as in `run.error`.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from math import ceil

import grpc
import orjson
from aiohttp import web
from google.protobuf.message import Message

from headrace.errors import (
    BY_REASON,
    HeadraceError,
    InvalidRequest,
    NotFound,
    Unsupported,
    from_rpc_error,
    to_failure,
)
from headrace.v1 import common_pb2
from services.runtime.formats.json_form import encode, split

HTTP_STATUS: dict[grpc.StatusCode, int] = {
    grpc.StatusCode.OK: 200,
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.OUT_OF_RANGE: 400,
    grpc.StatusCode.UNAUTHENTICATED: 401,
    grpc.StatusCode.PERMISSION_DENIED: 403,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.ABORTED: 409,
    grpc.StatusCode.ALREADY_EXISTS: 409,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.CANCELLED: 499,
    grpc.StatusCode.UNKNOWN: 500,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.DATA_LOSS: 500,
    grpc.StatusCode.UNIMPLEMENTED: 501,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
"""The mapping of google/rpc/code.proto; 499 is nginx's "client closed request"."""

INTERNAL = "internal error"

SAFE_MESSAGES: dict[grpc.StatusCode, str] = {
    grpc.StatusCode.UNIMPLEMENTED: "this version does not do that",
    grpc.StatusCode.DEADLINE_EXCEEDED: "a service did not answer in time; try again",
    grpc.StatusCode.RESOURCE_EXHAUSTED: "the request or its answer is too large",
    grpc.StatusCode.CANCELLED: "the request was cancelled",
}
"""Messages for statuses without one of our reasons; their own text may reveal internals."""

EARLIER_PHRASES = {
    413: "Request Entity Too Large",
    416: "Requested Range Not Satisfiable",
    422: "Unprocessable Entity",
}
"""Phrases of Go, and of Python before 3.13, so that both facades answer the same on any runtime."""

RETRIABLE = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED})

HTTP_ERRORS: dict[int, type[HeadraceError]] = {404: NotFound, 405: Unsupported}


def wrap_response(response: Message, response_body: str) -> web.Response:
    """Wrap an RPC's reply; the field `response_body` becomes `data`, preceded by the other fields."""
    if not response_body:
        return _json_response(b'{"code":0,"msg":"success","data":%b}' % encode(response))
    data, others = split(response, response_body)
    return _json_response(b'{"code":0,"msg":"success",%b"data":%b}' % (others + b"," if others else b"", data))


def wrap_data(data: object) -> web.Response:
    return _json_response(orjson.dumps({"code": 0, "msg": "success", "data": data}))


def wrap_error(error: HeadraceError) -> web.Response:
    return build_failure(
        HTTP_STATUS[error.code],
        error.reason,
        error.message,
        retriable=error.retriable,
        details=error.metadata,
        retry_after_s=error.retry_after_s,
    )


def wrap_rpc_error(error: grpc.aio.AioRpcError) -> web.Response:
    """Wrap a peer's error: our own error if it is one, otherwise a safe text for its status code."""
    if known := from_rpc_error(error):
        return wrap_error(known)
    safe = describe_error(error)
    return build_failure(HTTP_STATUS[error.code()], safe.code, safe.message, retriable=safe.retriable)


def describe_error(error: Exception) -> common_pb2.Failure:
    """Describe an error; only our own errors keep their message."""
    if isinstance(error, grpc.aio.AioRpcError):
        if known := from_rpc_error(error):
            return to_failure(known)
        code = error.code()
        message = SAFE_MESSAGES.get(code, INTERNAL)
        return common_pb2.Failure(code=code.name, message=message, retriable=code in RETRIABLE)
    if isinstance(error, HeadraceError):
        return to_failure(error)
    return common_pb2.Failure(code="INTERNAL", message=INTERNAL)


def wrap_http_error(error: web.HTTPException) -> web.Response:
    if isinstance(error, web.HTTPRequestEntityTooLarge):
        broken = InvalidRequest.of("body", error.text or "")
        return build_failure(error.status, broken.reason, broken.message, details=broken.metadata)
    cls = HTTP_ERRORS.get(error.status, InvalidRequest)
    answer = build_failure(error.status, cls.reason, get_phrase(error.status).lower())
    answer.headers.update({name: error.headers[name] for name in ("Allow", "Location") if name in error.headers})
    return answer


def get_phrase(status: int) -> str:
    return EARLIER_PHRASES.get(status) or HTTPStatus(status).phrase


def wrap_run_failure(code: str, message: str, *, retriable: bool, details: Mapping[str, str]) -> web.Response:
    cls = BY_REASON.get(code)
    return build_failure(HTTP_STATUS[cls.code] if cls else 500, code, message, retriable=retriable, details=details)


def build_failure(
    status: int,
    reason: str,
    message: str,
    *,
    retriable: bool = False,
    details: Mapping[str, str] | None = None,
    retry_after_s: float | None = None,
    data: object = None,
) -> web.Response:
    error = {"code": reason, "retriable": retriable, "details": details or {}}
    body = {"code": status, "msg": message, "data": data or {}, "error": error}
    answer = _json_response(orjson.dumps(body), status)
    if retry_after_s is not None:
        # HTTP allows only whole seconds; rounded up, so that no client retries too early.
        answer.headers["Retry-After"] = str(ceil(retry_after_s))
    if status == HTTPStatus.UNAUTHORIZED:
        answer.headers["WWW-Authenticate"] = "Bearer"  # https://www.rfc-editor.org/rfc/rfc9110#section-11.6.1
    return answer


def _json_response(body: bytes, status: int = 200) -> web.Response:
    return web.Response(body=body, status=status, content_type="application/json", charset="utf-8")
