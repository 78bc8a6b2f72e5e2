"""Statuses that HTTP/2 has beside gRPC's trailers: HTTP's own, and resets."""

from __future__ import annotations

import grpc
from h2.errors import ErrorCodes

from services.runtime.calls.metadata import Headers
from services.runtime.calls.status import Status

_BY_HTTP = {
    b"400": grpc.StatusCode.INTERNAL,
    b"401": grpc.StatusCode.UNAUTHENTICATED,
    b"403": grpc.StatusCode.PERMISSION_DENIED,
    b"404": grpc.StatusCode.UNIMPLEMENTED,
    b"429": grpc.StatusCode.UNAVAILABLE,
    b"502": grpc.StatusCode.UNAVAILABLE,
    b"503": grpc.StatusCode.UNAVAILABLE,
    b"504": grpc.StatusCode.UNAVAILABLE,
}
"""https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md; any other is UNKNOWN."""

_BY_RESET = {
    ErrorCodes.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    ErrorCodes.CANCEL: grpc.StatusCode.CANCELLED,
    ErrorCodes.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCodes.INADEQUATE_SECURITY: grpc.StatusCode.PERMISSION_DENIED,
}
"""https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors; any other is INTERNAL."""


def from_http(headers: Headers) -> Status | None:
    """Return the status of a proxy's answer; None for one of gRPC."""
    said = dict(headers)
    status = said.get(b":status", b"")
    if status != b"200":
        code = _BY_HTTP.get(status, grpc.StatusCode.UNKNOWN)
        return Status(code, f"the server answered with HTTP status {status[:3].decode('latin-1')}")
    if not said.get(b"content-type", b"").startswith(b"application/grpc"):
        return Status(grpc.StatusCode.UNKNOWN, "the server answered with something else than gRPC")
    return None


def from_reset(error_code: int) -> Status:
    known = name_error(error_code)
    code = _BY_RESET.get(known, grpc.StatusCode.INTERNAL)
    return Status(code, f"the server reset the stream: {known.name}", is_refused=known is ErrorCodes.REFUSED_STREAM)


def name_error(error_code: int) -> ErrorCodes:
    """Return a peer's error code; INTERNAL_ERROR for one that is not known."""
    return ErrorCodes(error_code) if error_code in ErrorCodes.__members__.values() else ErrorCodes.INTERNAL_ERROR
