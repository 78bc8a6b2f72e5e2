"""Reads a server stream so that leaving it cancels the call, and says why a server cannot be reached."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from headrace.errors import ProviderUnavailable, Unsupported, from_rpc_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Generator

Reply = TypeVar("Reply")

_UNREACHED = re.compile(
    r"failed to connect to all addresses; last error: \w+: "
    r"(?:ipv[46]:)?(?P<at>unix:[^:]+|\[[^]]*\]:\d+|[^:]+:\d+): (?P<why>.*)"
    r"|errors resolving (?P<name>.*?): \[(?P<problem>.*)\]$"
    r"|Failed to create channel to '(?P<target>.*?)':(?P<invalid>.*)",
    re.DOTALL,
)
"""Texts of grpcio, whose channels only clients use (grpcio 1.85, 2026-11); our own channels write others."""

_CAUSES = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (
            r"got frame type 0\b|Socket closed|reset by peer",
            "{} closed the connection: does it speak TLS (tls=Tls())?",
        ),
        (
            r"Failed parsing HTTP/2|http1",
            "{} speaks HTTP/1.1: is that the facade's port? gRPC's is 7001 by default",
        ),
        (
            r"before receiving SETTINGS",
            "{} accepts connections and does not speak gRPC: is that another program's port?",
        ),
        (
            r"Connection refused|No such file",
            "nothing listens at {}: is the server running, and is that its gRPC port?",
        ),
        (r"WRONG_VERSION_NUMBER", "{} speaks no TLS: leave out tls, or name the port that does"),
        (r"Hostname Verification|verify_peer_name|not match", "the certificate of {} is for another name"),
        (
            r"CERTIFICATE_VERIFY_FAILED|CERTIFICATE_UNKNOWN",
            "the certificate of {} is not trusted: name its CA, Tls(ca)",
        ),
        (
            r"CERTIFICATE_REQUIRED|handshake failed",
            "the TLS handshake with {} failed: does it ask for a certificate?",
        ),
        (r"not found|no address", "the name in {} has no address"),
        (
            r"Misformatted|parse port|not valid|://",
            "{} is no address: write host:port, without http:// and without a path",
        ),
    )
)
"""Our message for grpcio's texts, first match first; `{}` is the address."""


@contextmanager
def rpc_errors(*, is_client: bool = False) -> Generator[None]:
    """Raise a gRPC status as its HeadraceError; a status that is not ours stays a grpc.RpcError.

    For a client outside the suite, the error names address and cause if the server cannot be reached, and asks about
    the port if it lacks the method.
    """
    try:
        yield
    except grpc.RpcError as error:
        if not isinstance(error, grpc.aio.AioRpcError | grpc.Call):
            raise
        if is_client and (problem := _explain_unreached(error.details() or "")):
            raise ProviderUnavailable(problem) from error
        if known := from_rpc_error(error):
            try:
                raise known from error
            finally:
                del known  # its traceback has this frame, which would keep it, and all frames on its way, as a cycle
        if is_client and error.code() is grpc.StatusCode.UNIMPLEMENTED:
            raise Unsupported(f"grpc: {error.details()}: is that another service's port?") from error
        raise


def _explain_unreached(details: str) -> str:
    """Return address and cause; empty if the server was reached."""
    match = _UNREACHED.match(details)
    if match is None:
        return ""
    address = match["at"] or match["name"] or match["target"] or "''"
    why = match["why"] or match["problem"] or match["invalid"] or ""
    for pattern, text in _CAUSES:
        if pattern.search(why):
            return "grpc: " + text.format(address)
    return f"grpc: {address} cannot be reached: {why}"


@asynccontextmanager
async def reading(
    call: grpc.aio.UnaryStreamCall[Any, Reply], *, is_client: bool = False
) -> AsyncGenerator[AsyncIterator[Reply]]:
    """Read `call` inside the block; leaving it in any way cancels the call, which would otherwise continue and cost.

    Raises:
        HeadraceError: The service raised it, at any point.
    """
    try:
        with rpc_errors(is_client=is_client):
            yield aiter(call)
    finally:
        call.cancel()
