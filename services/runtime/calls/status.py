"""Statuses of calls, from and to trailers."""

from __future__ import annotations

from dataclasses import dataclass, field

import grpc

from services.runtime.calls.metadata import Headers, Pairs, from_headers, from_message, to_headers, to_message

CODES = {b"%d" % code.value[0]: code for code in grpc.StatusCode}
STATUS, MESSAGE = b"grpc-status", b"grpc-message"

PUSHBACK = b"grpc-retry-pushback-ms"
"""Trailer that, with 0, asks for another server at once
(https://github.com/grpc/proposal/blob/master/A6-client-retries.md)."""


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
