"""grpc.aio.Channel over the connections that a dialer opens.

Calls wait while the channel connects; in the pause after a failure they fail at once, unless they have
`wait_for_ready`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self, TypeAlias

import grpc

from services.runtime.calls.call_kinds import StreamStreamCall, StreamUnaryCall, UnaryStreamCall, UnaryUnaryCall
from services.runtime.calls.client_call import Call, Method
from services.runtime.calls.connection_pool import ConnectionPool
from services.runtime.calls.ends import Dialer
from services.runtime.calls.metadata import TIMEOUT, to_headers, to_timeout

FindKey: TypeAlias = Callable[[Any], str]
"""Finds the key of a call in its single request."""

CONNECTIVITY = grpc.ChannelConnectivity


class DialingChannel(grpc.aio.Channel):
    """A channel to one target, on the event loop of its first call."""

    def __init__(self, dialer: Dialer, find_key: FindKey | None = None) -> None:
        """Calls whose requests have the same key go to the same peer; an empty key is none."""
        self._pool = ConnectionPool(dialer)
        self._find_key = find_key
        self._calls: dict[Call, None] = {}
        """Calls that have not ended, in the order of their start."""

    # Kinds of calls, for generated stubs.

    def unary_unary(self, method: str, *codecs: Any, **named_codecs: Any) -> Any:
        return self._make_caller(UnaryUnaryCall, self._make_method(method, *codecs, **named_codecs))

    def unary_stream(self, method: str, *codecs: Any, **named_codecs: Any) -> Any:
        return self._make_caller(UnaryStreamCall, self._make_method(method, *codecs, **named_codecs))

    def stream_unary(self, method: str, *codecs: Any, **named_codecs: Any) -> Any:
        return self._make_caller(StreamUnaryCall, self._make_method(method, *codecs, **named_codecs))

    def stream_stream(self, method: str, *codecs: Any, **named_codecs: Any) -> Any:
        return self._make_caller(StreamStreamCall, self._make_method(method, *codecs, **named_codecs))

    def _make_method(
        self,
        path: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Method:
        return Method(path, request_serializer, response_deserializer, self._pool.repeat_call)

    def _make_caller(self, kind: type[Any], method: Method) -> Any:
        def call(
            request: Any = None,
            timeout: float | None = None,
            metadata: Any = None,
            credentials: Any = None,
            wait_for_ready: bool | None = None,
            compression: Any = None,
        ) -> Any:
            """Start a call with a single request, or with an iterator of requests."""
            headers = to_headers(metadata)
            if timeout is not None:
                headers.insert(0, (TIMEOUT, to_timeout(timeout)))
            made = kind(method, headers, timeout)
            if kind.is_repeatable:
                made.request = made.encode_request(request)
            made.waits_for_ready = bool(wait_for_ready)
            self._calls[made] = None
            made.add_done_callback(self._calls.pop)
            self._pool.assign_call(made, self._find_key(request) if kind.is_repeatable and self._find_key else "")
            if not kind.is_repeatable and request is not None:
                made.send_all(request)
            return made

        return call

    # Methods of the channel itself.

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        if try_to_connect:
            self._pool.start_connecting()
        return self._pool.state

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        while self._pool.state is last_observed_state:
            await self._pool.wait_for_change()

    async def channel_ready(self) -> None:
        while (state := self._pool.state) is not CONNECTIVITY.READY:
            if state is CONNECTIVITY.SHUTDOWN:
                raise asyncio.InvalidStateError("the channel is closed")
            self._pool.start_connecting()
            await self._pool.wait_for_change()

    async def close(self, grace: float | None = None) -> None:
        """End all calls within `grace` seconds, then all connections."""
        if grace and self._calls:
            over = [asyncio.ensure_future(call.code()) for call in self._calls]
            _, late = await asyncio.wait(over, timeout=grace)
            for waiting in late:
                waiting.cancel()
        for call in [*self._calls]:
            call.cancel()
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()
