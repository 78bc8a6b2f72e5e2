"""One call for its caller: grpc.aio's Call over one stream.

A call is over when its status is known; earlier messages may still be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import grpc

from services.runtime.calls.ends import CallStream, ClientEnd, Deadline
from services.runtime.calls.metadata import Headers, Status, from_headers, from_trailers

CANCELLED = Status(grpc.StatusCode.CANCELLED, "the caller cancelled the call", is_local=True)
LATE = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed")


@dataclass(frozen=True, slots=True)
class Method:
    path: str
    serialize: Callable[[Any], bytes] | None
    deserialize: Callable[[bytes], Any] | None
    repeat: Callable[[Call], bool]
    """Repeats a refused call on another connection; returns False if no other is available."""


class Call(grpc.aio.Call):
    is_repeatable = False
    """Whether the whole request is kept and has not been repeated yet."""

    def __init__(
        self,
        method: Method,
        headers: Headers,
        timeout_s: float | None,
    ) -> None:
        self.method = method
        self.request_headers = headers
        """Headers of only this call: its deadline and metadata."""
        self.waits_for_ready = False
        self.refused_by: ClientEnd | None = None
        """The connection that a repetition avoids."""
        self._connection: ClientEnd | None = None
        self.stream: CallStream | None = None
        self.status: Status | None = None
        self._trailers: Status | None = None
        """The status in the trailers, valid after all messages."""
        self._headers: Headers | None = None
        self._open_waiter: asyncio.Future[None] | None = None
        self._headers_waiter: asyncio.Future[None] | None = None
        self.on_message: Callable[[bytes], None] | None = None
        """Receives each message at once, if set."""
        self._callbacks: list[Callable[[Any], None]] = []
        self._deadline = None if timeout_s is None else Deadline(timeout_s, self._abandon_call, LATE)

    # Callbacks of the connection.

    def get_request(self) -> bytes | None:
        """Return the request's only message; None if messages follow."""
        return None

    def connect(self, connection: ClientEnd, stream: CallStream) -> None:
        """Take the stream; the connection sends the request if `get_request` has one."""
        self._connection, self.stream = connection, stream
        stream.take = self.on_message
        if self._open_waiter is not None:
            _wake_waiter(self._open_waiter)

    @property
    def has_headers(self) -> bool:
        return self._headers is not None

    def on_headers(self, headers: Headers, refusal: Status | None = None) -> None:
        """Process the answer's headers; `refusal` is the status of an answer that is not gRPC."""
        self._headers = headers
        if refusal is not None:
            # The body of such an answer contains no messages.
            self._abandon_call(refusal)
            return
        self._trailers = from_trailers(headers, are_all=True)
        _wake_waiter(self._headers_waiter)

    def on_trailers(self, headers: Headers) -> None:
        self._trailers = from_trailers(headers) or self._trailers

    def on_answer(self, headers: Headers | None, status: Status) -> None:
        """Process the end of an answer inside the process, with its headers unless they came before."""
        if headers is not None:
            self._headers = headers
        self.finish_call(status)

    def on_remote_end(self) -> None:
        assert self.stream is not None, "it has a stream"
        status = self._trailers or Status(grpc.StatusCode.INTERNAL, "the server ended the stream without a status")
        # A server that is stopped, for example by a deadline, may leave a message incomplete and send the reason.
        if self.stream.is_cut and status.code is grpc.StatusCode.OK:
            status = Status(grpc.StatusCode.INTERNAL, "the answer ended in the middle of a message")
        self.finish_call(status)

    def on_reset(self, status: Status) -> None:
        # A server with a slow client cannot report that the deadline has passed.
        self.finish_call(LATE if status.code is grpc.StatusCode.CANCELLED and self.time_remaining() == 0 else status)

    def finish_call(self, status: Status) -> None:
        if self.status is not None:
            return
        if status.is_refused and self.is_repeatable:
            self.refused_by = self._connection
            self.is_repeatable = False
            if self.method.repeat(self):
                self.stream = self._connection = self._open_waiter = self._headers = self._trailers = None
                return
        self.status = status
        if self._deadline is not None:
            self._deadline.cancel()
        if (stream := self.stream) is not None and not stream.is_ended:
            stream.is_ended = True
            stream.wake_reader()
        for waiter in (self._open_waiter, self._headers_waiter):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)
        callbacks, self._callbacks = self._callbacks, []  # the waiter is released
        for callback in callbacks:
            callback(self)

    def _abandon_call(self, status: Status) -> bool:
        if self.status is not None:
            return False
        stream, connection = self.stream, self._connection
        self.finish_call(status)
        if stream is not None and connection is not None:
            stream.inbox.clear()
            connection.drop_stream(stream.id)
        return True

    # Methods for the caller.

    def cancel(self) -> bool:
        return self._abandon_call(CANCELLED)

    def cancelled(self) -> bool:
        return self.status is not None and self.status.is_local

    def done(self) -> bool:
        return self.status is not None

    def time_remaining(self) -> float | None:
        return None if self._deadline is None else self._deadline.remaining_s

    def add_done_callback(self, callback: Any) -> None:
        if self.status is not None:
            callback(self)
        else:
            self._callbacks.append(callback)

    async def initial_metadata(self) -> Any:
        if self._headers is None and self.status is None:
            self._headers_waiter = self._headers_waiter or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._headers_waiter)
        return grpc.aio.Metadata(*from_headers(self._headers or ()))

    async def trailing_metadata(self) -> Any:
        return grpc.aio.Metadata(*(await self._wait_for_status()).metadata)

    async def code(self) -> grpc.StatusCode:
        return (await self._wait_for_status()).code

    async def details(self) -> str:
        return (await self._wait_for_status()).details

    async def wait_for_connection(self) -> None:
        await self.wait_until_open()
        if self.stream is None:
            self.raise_status()

    async def _wait_for_status(self) -> Status:
        await self.make_end_waiter()
        assert self.status is not None, "the call is over"
        return self.status

    # Methods for the kinds of calls.

    async def wait_until_open(self) -> None:
        while self.stream is None and self.status is None:
            self._open_waiter = self._open_waiter or asyncio.get_running_loop().create_future()
            await asyncio.shield(self._open_waiter)

    def make_end_waiter(self) -> asyncio.Future[None]:
        """Return a future of the caller's own that is done when the call is over."""
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.add_done_callback(partial(_wake_waiter, over))
        return over

    def raise_status(self) -> None:
        status = self.status
        assert status is not None, "the call is over"
        if status.is_local:
            raise asyncio.CancelledError
        if status.code is not grpc.StatusCode.OK:
            initial = grpc.aio.Metadata(*from_headers(self._headers or ()))
            trailing = grpc.aio.Metadata(*status.metadata)
            message = f"{self.method.path}: {status.details}"
            raise grpc.aio.AioRpcError(status.code, initial, trailing, status.details, message)

    def encode_request(self, request: Any) -> bytes:
        serialize = self.method.serialize
        return serialize(request) if serialize is not None else request

    def decode_message(self, message: bytes) -> Any:
        deserialize = self.method.deserialize
        return deserialize(message) if deserialize is not None else message


def _wake_waiter(waiter: asyncio.Future[None] | None, _: object = None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
