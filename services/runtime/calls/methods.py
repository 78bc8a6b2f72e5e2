"""The methods that a server serves, and the start of their calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import grpc

from services.runtime.calls.ends import CallStream, ServerEnd
from services.runtime.calls.metadata import TIMEOUT, Headers, from_headers, from_timeout
from services.runtime.calls.server_call import RESPONSE_HEADERS, ServerCall
from services.runtime.calls.status import to_trailers

Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"

DEADLINE_S_MAX = 30 * 24 * 3600.0
"""Longest deadline; a longer one is ignored, because timers need an end."""


class _CallDetails(NamedTuple):
    method: str
    invocation_metadata: tuple[tuple[str, str | bytes], ...]
    call: ServerCall


class Methods:
    def __init__(self, interceptors: Sequence[grpc.aio.ServerInterceptor]) -> None:
        self._interceptors = interceptors
        self._generic: list[Any] = []
        self._registered: dict[str, Handler] = {}

    def add_generic(self, handlers: Iterable[Any]) -> None:
        self._generic += handlers

    def add_registered(self, service_name: str, handlers: Mapping[str, Handler]) -> None:
        self._registered |= {f"/{service_name}/{name}": handler for name, handler in handlers.items()}

    def start_call(self, connection: ServerEnd, stream: CallStream, method: str, headers: Headers) -> ServerCall | None:
        """Start the call of a method; None if it was refused."""
        timeout = next((value for name, value in headers if name == TIMEOUT), None)
        timeout_s = None if timeout is None else from_timeout(timeout)
        if timeout is not None and timeout_s is None:
            said = "grpc-timeout is not a timeout"
            stream.end_local(RESPONSE_HEADERS + to_trailers(grpc.StatusCode.INTERNAL, said, []))
            return None
        if timeout_s is not None and timeout_s > DEADLINE_S_MAX:
            timeout_s = None
        call = ServerCall(connection, stream, method, from_headers(headers), timeout_s)
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
