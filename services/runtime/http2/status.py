"""Statuses of calls: from trailers, from what HTTP says instead of them, and into trailers."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
from h2.errors import ErrorCodes

from services.runtime.http2.metadata import Headers, Pairs, from_headers, from_message, to_headers, to_message

CODES = {code.value[0]: code for code in grpc.StatusCode}

STATUS, MESSAGE = b"grpc-status", b"grpc-message"

_BY_HTTP = {
    400: grpc.StatusCode.INTERNAL,
    401: grpc.StatusCode.UNAUTHENTICATED,
    403: grpc.StatusCode.PERMISSION_DENIED,
    404: grpc.StatusCode.UNIMPLEMENTED,
    429: grpc.StatusCode.UNAVAILABLE,
    502: grpc.StatusCode.UNAVAILABLE,
    503: grpc.StatusCode.UNAVAILABLE,
    504: grpc.StatusCode.UNAVAILABLE,
}
"""https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md; any other is UNKNOWN."""

_BY_RESET = {
    ErrorCodes.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    ErrorCodes.CANCEL: grpc.StatusCode.CANCELLED,
    ErrorCodes.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCodes.INADEQUATE_SECURITY: grpc.StatusCode.PERMISSION_DENIED,
}
"""https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors; any other is INTERNAL."""


@dataclass(frozen=True, slots=True)
class Status:
    """How a call ended."""

    code: grpc.StatusCode
    details: str = ""
    metadata: tuple[tuple[str, str | bytes], ...] = ()
    """What the trailers say beside it."""

    is_refused: bool = False
    """The server has not begun the call: it may be made again."""

    is_local: bool = False
    """Our own caller cancelled it."""


def to_trailers(code: grpc.StatusCode, details: str, metadata: Pairs) -> Headers:
    """The trailers of a status."""
    trailers: Headers = [(STATUS, b"%d" % code.value[0])]
    if details:
        trailers.append((MESSAGE, to_message(details)))
    return trailers + to_headers(metadata)


def from_trailers(headers: Headers) -> Status | None:
    """The status that trailers give; None: they give none."""
    said = dict(headers)
    number = said.get(STATUS, b"")
    if not number.isdigit():
        return None
    metadata = [pair for pair in from_headers(headers) if pair[0] not in ("grpc-status", "grpc-message")]
    code = CODES.get(int(number), grpc.StatusCode.UNKNOWN)
    return Status(code, from_message(said.get(MESSAGE, b"")), tuple(metadata))


def from_http(status: bytes) -> Status:
    """The status of an answer that is none of gRPC's, a proxy's for example."""
    code = _BY_HTTP.get(int(status), grpc.StatusCode.UNKNOWN) if status.isdigit() else grpc.StatusCode.UNKNOWN
    return Status(code, f"the server answered with HTTP status {status.decode('latin-1')}")


def from_reset(error_code: int) -> Status:
    """The status of a stream that the server reset."""
    known = ErrorCodes(error_code) if error_code in ErrorCodes.__members__.values() else ErrorCodes.INTERNAL_ERROR
    code = _BY_RESET.get(known, grpc.StatusCode.INTERNAL)
    return Status(code, f"the server reset the stream: {known.name}", is_refused=known is ErrorCodes.REFUSED_STREAM)
