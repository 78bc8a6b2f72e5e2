"""grpc.aio.Channel over our connections.

Calls wait while the channel connects; in the pause after a failure they fail at once, unless they wait for ready.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

import grpc

from services.runtime.http2.client.addresses import parse_target
from services.runtime.http2.client.call import Call, Method
from services.runtime.http2.client.call_kinds import StreamStreamCall, StreamUnaryCall, UnaryStreamCall, UnaryUnaryCall
from services.runtime.http2.client.connection_pool import ConnectionPool
from services.runtime.http2.client.dialer import Dialer
from services.runtime.http2.codec.header_blocks import encode_block
from services.runtime.http2.codec.metadata import to_headers, to_timeout
from services.runtime.http2.limits import DEFAULTS, Limits

CallT = TypeVar("CallT", bound=Call)

CONNECTIVITY = grpc.ChannelConnectivity


class Channel(grpc.aio.Channel):
    """A channel to one target, on the loop of its first call."""

    def __init__(
        self,
        target: str,
        *,
        message_bytes_max: int,
        context: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        limits: Limits = DEFAULTS,
    ) -> None:
        """`server_name` is the name in the server's certificate if that is not the host."""
        parsed = parse_target(target)
        self._scheme = b"http" if context is None else b"https"
        self._authority = (server_name or parsed.authority).encode()
        self._pool = ConnectionPool(Dialer(parsed, message_bytes_max, limits, context, server_name))
        self._calls: set[Call] = set()

    # Kinds of calls, as generated stubs ask for them.

    def unary_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        return self._make_one_request_method(UnaryUnaryCall, method, request_serializer, response_deserializer)

    def unary_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        return self._make_one_request_method(UnaryStreamCall, method, request_serializer, response_deserializer)

    def stream_unary(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        return self._make_many_requests_method(StreamUnaryCall, method, request_serializer, response_deserializer)

    def stream_stream(
        self,
        method: str,
        request_serializer: Any = None,
        response_deserializer: Any = None,
        _registered_method: bool | None = False,
    ) -> Any:
        return self._make_many_requests_method(StreamStreamCall, method, request_serializer, response_deserializer)

    def _make_one_request_method(self, kind: type[Any], method: str, serialize: Any, deserialize: Any) -> Any:
        head = self._encode_common_headers(method)
        called = Method(method, serialize, deserialize, self._pool.repeat_call)

        def call(
            request: Any,
            *,
            timeout: float | None = None,
            metadata: Any = None,
            credentials: Any = None,
            wait_for_ready: bool | None = None,
            compression: Any = None,
        ) -> Any:
            headers = head + _encode_call_headers(timeout, metadata)
            made = kind(called, headers, timeout)
            made.request = made.encode_request(request)
            return self._start_call(made, wait_for_ready)

        return call

    def _make_many_requests_method(self, kind: type[Any], method: str, serialize: Any, deserialize: Any) -> Any:
        head = self._encode_common_headers(method)
        called = Method(method, serialize, deserialize, self._pool.repeat_call)

        def call(
            request_iterator: Any = None,
            timeout: float | None = None,
            metadata: Any = None,
            credentials: Any = None,
            wait_for_ready: bool | None = None,
            compression: Any = None,
        ) -> Any:
            headers = head + _encode_call_headers(timeout, metadata)
            made = kind(called, headers, timeout)
            self._start_call(made, wait_for_ready)
            if request_iterator is not None:
                made.send_all(request_iterator)
            return made

        return call

    def _encode_common_headers(self, method: str) -> bytes:
        return encode_block(
            (
                (b":method", b"POST"),
                (b":scheme", self._scheme),
                (b":path", method.encode()),
                (b":authority", self._authority),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (b"user-agent", b"headrace"),
            )
        )

    def _start_call(self, call: CallT, wait_for_ready: bool | None) -> CallT:
        call.waits_for_ready = bool(wait_for_ready)
        self._calls.add(call)
        call.add_done_callback(self._calls.discard)
        self._pool.assign_call(call)
        return call

    # The channel itself.

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

    async def __aenter__(self) -> Channel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _encode_call_headers(timeout_s: float | None, metadata: Any) -> bytes:
    headers = to_headers(metadata)
    if timeout_s is not None:
        headers.insert(0, (b"grpc-timeout", to_timeout(timeout_s)))
    return encode_block(headers)
