"""grpc.aio.Server over our connections."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import grpc

from services.runtime.http2.codec.metadata import Headers, Pairs, from_headers, from_timeout
from services.runtime.http2.codec.status import to_trailers
from services.runtime.http2.limits import ACCEPTING_MAX, DEFAULTS, Limits
from services.runtime.http2.server.call import RESPONSE_HEADERS, ServerCall
from services.runtime.http2.server.connection import ServerConnection, ServerState
from services.runtime.http2.server.sockets import bind_address
from services.runtime.http2.server.tls_listener import TlsListener
from services.runtime.http2.stream import Stream
from services.runtime.http2.tls import restrict_to_http2

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

DEADLINE_S_MAX = 30 * 24 * 3600.0
"""Longest deadline; a longer one is ignored, because timers need an end."""


class _CallDetails(NamedTuple):
    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...]
    call: ServerCall


class Server(grpc.aio.Server):
    """A server that runs from `start` to `stop`, on the loop of `start`."""

    def __init__(
        self,
        *,
        interceptors: Sequence[grpc.aio.ServerInterceptor] = (),
        message_bytes_max: int,
        connection_age_s: float = 0.0,
        limits: Limits = DEFAULTS,
        knows_callers: bool = False,
    ) -> None:
        """`knows_callers` says that an interceptor calls `note_admitted` of each call that may be made."""
        self._interceptors = interceptors
        self._state = ServerState(message_bytes_max, connection_age_s, limits, knows_callers=knows_callers)
        self._generic: list[Any] = []
        self._registered: dict[str, Handler] = {}
        self._listening: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._servers: list[asyncio.AbstractServer | TlsListener] = []
        self._stopped = asyncio.Event()

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        self._generic += generic_rpc_handlers

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        self._registered |= {f"/{service_name}/{name}": handler for name, handler in method_handlers.items()}

    def add_insecure_port(self, address: str) -> int:
        """Listen on host:port or unix:/path and return the port; raises OSError if that fails."""
        return self.add_port(address, None)

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        raise NotImplementedError("grpc's credentials hide their certificates; add_port takes an ssl.SSLContext")

    def add_port(self, address: str, context: ssl.SSLContext | None) -> int:
        """Listen as add_insecure_port does, with TLS if `context` is given."""
        sockets, port = bind_address(address)
        self._listening += [(item, restrict_to_http2(context) if context is not None else None) for item in sockets]
        return port

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        for listening, context in self._listening:
            if context is not None:
                self._servers.append(TlsListener(listening, context, self.make_connection, self._state))
                continue
            create: Any = loop.create_unix_server if listening.family == socket.AF_UNIX else loop.create_server
            self._servers.append(await create(self.make_connection, sock=listening, backlog=ACCEPTING_MAX))

    async def stop(self, grace: float | None) -> None:
        """Refuse new calls, and cancel the running ones after `grace` seconds."""
        self._state.is_stopping = True
        for server in self._servers:
            server.close()
        for connection in [*self._state.connections]:
            connection.start_leaving() if grace else connection.refuse_new()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (grace or 0)
        await self._state.calls.wait_until_zero(grace or 0)
        for connection in [*self._state.connections]:
            connection.refuse_new()
        # Calls that came in while the last of the others ended have what is left of the time.
        await self._state.calls.wait_until_zero(until_s - loop.time())
        for connection in [*self._state.connections]:
            for call in [*connection.calls.values()]:
                call.cancel_handler()
        await self._state.calls.wait_until_zero(self._state.limits.last_calls_s)
        await asyncio.gather(*(connection.close() for connection in self._state.connections))
        self._stopped.set()

    async def wait_for_termination(self, timeout: float | None = None) -> bool:
        try:
            async with asyncio.timeout(timeout):
                await self._stopped.wait()
        except TimeoutError:
            return False
        return True

    def make_connection(self) -> ServerConnection:
        return ServerConnection(self._open_call, self._state)

    def _open_call(self, connection: ServerConnection, stream: Stream, headers: Headers) -> ServerCall | None:
        said = dict(headers)
        if refusal := _find_refusal(said):
            stream.end_local(refusal)
            connection.note_refused()
            return None
        timeout_s = None
        if b"grpc-timeout" in said and (timeout_s := from_timeout(said[b"grpc-timeout"])) is None:
            stream.end_local(
                RESPONSE_HEADERS + to_trailers(grpc.StatusCode.INTERNAL, "grpc-timeout is not a timeout", [])
            )
            return None
        if timeout_s is not None and timeout_s > DEADLINE_S_MAX:
            timeout_s = None
        metadata: Pairs = from_headers(headers)
        call = ServerCall(connection, stream, said[b":path"].decode("latin-1"), metadata, timeout_s)
        details = _CallDetails(call.method, call.invocation_metadata(), call)
        call.start_handler(lambda: self._find_handler(0, details))
        return call

    async def _find_handler(self, index: int, details: Any) -> Handler | None:
        """Return the handler that the interceptors from `index` on give."""
        if index == len(self._interceptors):
            if (handler := self._registered.get(details.method)) is not None:
                return handler
            return next((found for item in self._generic if (found := item.service(details)) is not None), None)

        async def go_on(details: Any) -> Handler | None:
            return await self._find_handler(index + 1, details)

        interceptor: Any = self._interceptors[index]
        return await interceptor.intercept_service(go_on, details)


def _find_refusal(said: dict[bytes, bytes]) -> Headers:
    """Return the answer to a foreign request; empty if it is gRPC's."""
    kind = said.get(b"content-type", b"")
    if kind != b"application/grpc" and not kind.startswith((b"application/grpc+", b"application/grpc;")):
        return [(b":status", b"415")]
    if said.get(b":method") != b"POST":
        return [(b":status", b"405")]
    return []
