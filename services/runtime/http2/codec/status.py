"""Statuses of calls, from and to trailers and HTTP's own signs."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc
from h2.errors import ErrorCodes

from services.runtime.http2.codec.metadata import Headers, Pairs, from_headers, from_message, to_headers, to_message

CODES = {b"%d" % code.value[0]: code for code in grpc.StatusCode}
STATUS, MESSAGE = b"grpc-status", b"grpc-message"

PUSHBACK = b"grpc-retry-pushback-ms"
"""Trailer that, with 0, asks for another server at once
(https://github.com/grpc/proposal/blob/master/A6-client-retries.md)."""

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


@dataclass(frozen=True, slots=True)
class Status:
    code: grpc.StatusCode
    details: str = ""
    metadata: tuple[tuple[str, str | bytes], ...] = ()

    is_refused: bool = False
    """Whether the server did not begin the call, so that it may be repeated."""

    is_local: bool = False


def to_trailers(code: grpc.StatusCode, details: str, metadata: Pairs) -> Headers:
    trailers: Headers = [(STATUS, b"%d" % code.value[0])]
    if details:
        trailers.append((MESSAGE, to_message(details)))
    return trailers + to_headers(metadata)


@dataclass(slots=True)
class ServerStatus:
    """A status that the handler may change until it is sent."""

    code: grpc.StatusCode = grpc.StatusCode.OK
    details: str = ""
    trailing: Pairs = field(default_factory=list[tuple[str, str | bytes]])

    def to_trailers(self) -> Headers:
        return to_trailers(self.code, self.details, self.trailing)


def from_trailers(headers: Headers, *, are_all: bool = False) -> Status | None:
    """Return the status in trailers, if any; `are_all` says that the answer has nothing else."""
    said = dict(headers)
    if STATUS not in said:
        return None
    metadata = [pair for pair in from_headers(headers) if pair[0] not in ("grpc-status", "grpc-message")]
    code = CODES.get(said[STATUS], grpc.StatusCode.UNKNOWN)
    is_refused = are_all and code is grpc.StatusCode.UNAVAILABLE and said.get(PUSHBACK) == b"0"
    return Status(code, from_message(said.get(MESSAGE, b"")), tuple(metadata), is_refused)


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
    known = ErrorCodes(error_code) if error_code in ErrorCodes.__members__.values() else ErrorCodes.INTERNAL_ERROR
    code = _BY_RESET.get(known, grpc.StatusCode.INTERNAL)
    return Status(code, f"the server reset the stream: {known.name}", is_refused=known is ErrorCodes.REFUSED_STREAM)
