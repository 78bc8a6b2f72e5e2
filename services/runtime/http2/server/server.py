"""grpc.aio.Server over our connections, over sockets and in memory, with the same methods."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import grpc

from services.runtime.calls.addresses import describe_address, parse_target
from services.runtime.calls.ends import CallStream, ServerEnd
from services.runtime.calls.metadata import TIMEOUT, Headers, ServerStatus, from_headers, from_timeout, measure_headers
from services.runtime.calls.server_call import RESPONSE_HEADERS, ServerCall
from services.runtime.http2.limits import DEFAULTS, HEADERS_BYTES_MAX, Limits
from services.runtime.http2.server.connection import ServerConnection, ServerState
from services.runtime.http2.server.listener import Listener, bind_address
from services.runtime.http2.stream import Stream
from services.runtime.http2.tls import restrict_to_http2
from services.runtime.local.connections import LocalServerConnection, LocalServerState
from services.runtime.local.network import LocalNetwork

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
        network: LocalNetwork | None = None,
        reuse_port: bool = False,
    ) -> None:
        """With `knows_callers`, an interceptor calls `note_admitted` for each permitted call. With `network`, the
        server also listens there, at the same addresses except those with TLS. With `reuse_port`, other processes may
        listen at its ports, too."""
        self._interceptors = interceptors
        self._generic: list[Any] = []
        self._registered: dict[str, Handler] = {}
        self._state = ServerState(message_bytes_max, connection_age_s, limits, knows_callers=knows_callers)
        self._network = network
        self._reuse_port = reuse_port
        self._local_addresses: list[str] = []
        self._local = LocalServerState(self._start_call, message_bytes_max, limits, self._state.calls, {})
        self._listening: list[tuple[socket.socket, ssl.SSLContext | None]] = []
        self._listeners: list[Listener] = []
        self._stopped = asyncio.Event()

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        self._generic += generic_rpc_handlers

    def add_registered_method_handlers(self, service_name: str, method_handlers: Mapping[str, Handler]) -> None:
        self._registered |= {f"/{service_name}/{name}": handler for name, handler in method_handlers.items()}

    def add_insecure_port(self, address: str) -> int:
        """Listen on host:port, unix:/path or local:name and return the port; raises OSError if that fails."""
        return self.add_port(address, None)

    def add_secure_port(self, address: str, server_credentials: grpc.ServerCredentials) -> int:
        raise NotImplementedError("grpc's credentials hide their certificates; add_port takes an ssl.SSLContext")

    def add_port(self, address: str, context: ssl.SSLContext | None) -> int:
        """Listen like add_insecure_port, with TLS if `context` is given."""
        target = parse_target(address)
        if target.is_local:
            if self._network is None:
                raise OSError(f"{address} is for servers inside one process alone")
            self._local_addresses.append(address)
            return 1
        sockets, port = bind_address(address, reuse_port=self._reuse_port)
        if self._network is not None and context is None:
            self._local_addresses.append(describe_address(target.path or (target.host, port)))
        self._listening += [(item, restrict_to_http2(context) if context is not None else None) for item in sockets]
        return port

    async def start(self) -> None:
        if self._network is not None:
            for address in self._local_addresses:
                self._network.listen(address, self._local)
        for listening, context in self._listening:
            self._listeners.append(Listener(listening, context, self.make_connection, self._state))

    async def stop(self, grace: float | None) -> None:
        """Refuse new calls, and cancel the running ones after `grace` seconds."""
        self._state.is_stopping = True
        for listener in self._listeners:
            listener.close()
        if self._network is not None:
            for address in self._local_addresses:
                self._network.stop_listening(address, self._local)
        for connection in self._list_connections():
            connection.start_leaving() if grace else connection.refuse_new()
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (grace or 0)
        await self._state.calls.wait_until_zero(grace or 0)
        for connection in self._list_connections():
            connection.refuse_new()
        # Calls that arrived while the others ended get the rest of the time.
        await self._state.calls.wait_until_zero(until_s - loop.time())
        for connection in self._list_connections():
            for call in [*connection.calls.values()]:
                call.cancel_handler()
        await self._state.calls.wait_until_zero(self._state.limits.last_calls_s)
        await asyncio.gather(*(connection.close() for connection in self._list_connections()))
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
        fields = dict(headers)
        refusal = _find_refusal(fields)
        if not refusal and measure_headers(headers) > HEADERS_BYTES_MAX:
            too_large = f"the metadata is larger than {HEADERS_BYTES_MAX} bytes"
            refusal = RESPONSE_HEADERS + ServerStatus(grpc.StatusCode.RESOURCE_EXHAUSTED, too_large).to_trailers()
        if refusal:
            stream.end_local(refusal)
            connection.note_refused()
            return None
        return self._start_call(connection, stream, fields[b":path"].decode("latin-1"), headers)

    def _start_call(
        self, connection: ServerEnd, stream: CallStream, method: str, headers: Headers
    ) -> ServerCall | None:
        """Start the call of a method; None if it was refused."""
        timeout = dict(headers).get(TIMEOUT)
        timeout_s = None if timeout is None else from_timeout(timeout)
        if timeout is not None and timeout_s is None:
            status = ServerStatus(grpc.StatusCode.INTERNAL, "grpc-timeout is not a timeout")
            connection.finish_stream(stream, [], None, status)
            return None
        if timeout_s is not None and timeout_s > DEADLINE_S_MAX:
            timeout_s = None
        call = ServerCall(connection, stream, method, from_headers(headers), timeout_s)
        details = _CallDetails(call.method, call.invocation_metadata(), call)
        call.start_handler(partial(self._find_handler, 0, details))
        return call

    async def _find_handler(self, index: int, details: Any) -> Handler | None:
        """Return the handler that results from the interceptors after `index`."""
        if index == len(self._interceptors):
            if (handler := self._registered.get(details.method)) is not None:
                return handler
            return next((found for item in self._generic if (found := item.service(details)) is not None), None)

        async def go_on(details: Any) -> Handler | None:
            return await self._find_handler(index + 1, details)

        interceptor: Any = self._interceptors[index]
        return await interceptor.intercept_service(go_on, details)

    def _list_connections(self) -> list[ServerConnection | LocalServerConnection]:
        return [*self._state.connections, *self._local.connections]


def _find_refusal(fields: dict[bytes, bytes]) -> Headers:
    """Return the answer to a request that is not gRPC; empty if it is gRPC."""
    kind = fields.get(b"content-type", b"")
    if kind != b"application/grpc" and not kind.startswith((b"application/grpc+", b"application/grpc;")):
        return [(b":status", b"415")]
    if fields.get(b":method") != b"POST":
        return [(b":status", b"405")]
    return []
