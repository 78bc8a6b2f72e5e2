"""One call as its caller sees it: grpc.aio's Call objects over one stream.

A call begins when it is made, or as soon as its channel has a connection. It is over when its status is known; what
came before that may still be read.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any

import grpc
import structlog

from services.runtime.http2.metadata import Headers, from_headers
from services.runtime.http2.status import Status, from_http, from_trailers
from services.runtime.http2.stream import Stream

if TYPE_CHECKING:
    from services.runtime.http2.client_connection import ClientConnection

CANCELLED = Status(grpc.StatusCode.CANCELLED, "the caller cancelled the call", is_local=True)
LATE = Status(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline has passed")

log = structlog.get_logger()


class Call(grpc.aio.Call):
    """What all kinds of calls have in common."""

    is_repeatable = False
    """Whether all of its request is still there."""

    def __init__(
        self,
        headers: Headers,
        timeout_s: float | None,
        serialize: Callable[[Any], bytes] | None,
        deserialize: Callable[[bytes], Any] | None,
        retire: Callable[[Call], bool],
    ) -> None:
        self.headers = headers
        self.waits_for_ready = False
        self.was_repeated = False
        self.refused_by: ClientConnection | None = None
        """Made again, the call goes to another one, if there is one."""
        self._loop = asyncio.get_running_loop()
        self._serialize = serialize
        self._deserialize = deserialize
        self._retire = retire
        """Asked when the server has refused the call: True makes it again on another connection."""
        self._connection: ClientConnection | None = None
        self._stream: Stream | None = None
        self._status: Status | None = None
        self._trailers: Status | None = None
        """The status that the trailers gave; it counts once all messages before it are there."""
        self._initial: Headers | None = None
        self._opened: asyncio.Future[None] | None = None
        self._headed: asyncio.Future[None] | None = None
        self._take: Callable[[bytes], None] | None = None
        self._callbacks: list[Callable[[Any], None]] = []
        self._due_s = None if timeout_s is None else self._loop.time() + timeout_s
        self._timer = None if timeout_s is None else self._loop.call_later(max(timeout_s, 0), self._late)

    # What the connection says.

    def opened(self, connection: ClientConnection, stream: Stream) -> None:
        """The call has its stream."""
        self._connection, self._stream = connection, stream
        stream.take = self._take
        self.begin(stream)
        _wake(self._opened)

    def begin(self, stream: Stream) -> None:
        """Send what is known of the request."""

    def answered(self, headers: Headers) -> None:
        """The first headers are there; with a status they are the last ones too."""
        self._initial = headers
        if (refusal := from_http(headers)) is not None:
            # What follows are no messages.
            self._stop(refusal)
            return
        self._trailers = from_trailers(headers, are_all=True)
        _wake(self._headed)

    def closing(self, headers: Headers) -> None:
        """The trailers are there."""
        self._trailers = from_trailers(headers) or self._trailers

    def remote_ended(self) -> None:
        """The server has said all."""
        assert self._stream is not None, "it has a stream"
        if self._stream.is_cut:
            self.ended(Status(grpc.StatusCode.INTERNAL, "the answer ended in the middle of a message"))
            return
        self.ended(self._trailers or Status(grpc.StatusCode.INTERNAL, "the server ended the stream without a status"))

    def was_reset(self, status: Status) -> None:
        """The server has ended the stream without trailers."""
        # A server whose client is behind cannot say that the deadline has passed.
        self.ended(LATE if status.code is grpc.StatusCode.CANCELLED and self.time_remaining() == 0 else status)

    def ended(self, status: Status) -> None:
        """The call is over, unless it is made again."""
        if self._status is not None:
            return
        if status.is_refused and self.is_repeatable:
            self.refused_by = self._connection
            if self._retire(self):
                self._stream = self._connection = self._opened = self._initial = self._trailers = None
                return
        self._status = status
        if self._timer is not None:
            self._timer.cancel()
        if self._stream is not None:
            self._stream.is_ended = True
            self._stream.wake()
        _wake(self._opened)
        _wake(self._headed)
        for callback in self._callbacks:
            callback(self)

    def _late(self) -> None:
        self._stop(LATE)

    def _stop(self, status: Status) -> bool:
        if self._status is not None:
            return False
        stream, connection = self._stream, self._connection
        self.ended(status)
        if stream is not None and connection is not None:
            stream.inbox.clear()
            connection.drop(stream)
        return True

    # What the caller asks.

    def cancel(self) -> bool:
        return self._stop(CANCELLED)

    def cancelled(self) -> bool:
        return self._status is not None and self._status.is_local

    def done(self) -> bool:
        return self._status is not None

    def time_remaining(self) -> float | None:
        return None if self._due_s is None else max(self._due_s - self._loop.time(), 0.0)

    def add_done_callback(self, callback: Any) -> None:
        if self._status is not None:
            callback(self)
        else:
            self._callbacks.append(callback)

    async def initial_metadata(self) -> Any:
        if self._initial is None and self._status is None:
            self._headed = self._headed or self._loop.create_future()
            await asyncio.shield(self._headed)
        return grpc.aio.Metadata(*from_headers(self._initial or ()))

    async def trailing_metadata(self) -> Any:
        return grpc.aio.Metadata(*(await self._ended()).metadata)

    async def code(self) -> grpc.StatusCode:
        return (await self._ended()).code

    async def details(self) -> str:
        return (await self._ended()).details

    async def wait_for_connection(self) -> None:
        await self._until_open()
        if self._stream is None:
            self._raise()

    async def _ended(self) -> Status:
        await self._over()
        assert self._status is not None, "the call is over"
        return self._status

    def _over(self) -> asyncio.Future[None]:
        """Done when the call is over; each waiter's own, so that one that is cancelled leaves the others theirs."""
        over: asyncio.Future[None] = self._loop.create_future()

        def wake(_: object) -> None:
            _wake(over)

        self.add_done_callback(wake)
        return over

    async def _until_open(self) -> None:
        while self._stream is None and self._status is None:
            self._opened = self._opened or self._loop.create_future()
            await asyncio.shield(self._opened)

    def _raise(self) -> None:
        """Raise what the status says, unless it is OK."""
        status = self._status
        assert status is not None, "the call is over"
        if status.is_local:
            raise asyncio.CancelledError
        if status.code is not grpc.StatusCode.OK:
            initial = grpc.aio.Metadata(*from_headers(self._initial or ()))
            trailing = grpc.aio.Metadata(*status.metadata)
            raise grpc.aio.AioRpcError(status.code, initial, trailing, status.details, status.details)

    def _decoded(self, message: bytes) -> Any:
        return self._deserialize(message) if self._deserialize is not None else message


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)


class _OneRequest(Call):
    """Its request is one message, sent as soon as there is a stream."""

    is_repeatable = True
    request: bytes

    def begin(self, stream: Stream) -> None:
        stream.send(self.request)
        stream.end([])


class _OneAnswer(Call):
    """Its answer is one message: the call is awaited."""

    def __await__(self) -> Generator[Any, None, Any]:
        try:
            yield from self._over().__await__()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self._raise()
        if self._stream is None or len(self._stream.inbox) != 1:
            said = "no answer" if self._stream is None or not self._stream.inbox else "more than one answer"
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), f"the server gave {said}"
            )
        return self._decoded(self._stream.inbox[0])


class _ManyAnswers(Call):
    """Its answers are read one after another, or poured."""

    def __aiter__(self) -> AsyncIterator[Any]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    async def read(self) -> Any:
        try:
            while True:
                await self._until_open()
                # A call that is made again gets another stream.
                if (stream := self._stream) is None or stream.inbox or self._status is not None:
                    break
                await stream.wait()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if stream is not None and stream.inbox:
            return self._decoded(stream.pop())
        self._raise()
        return grpc.aio.EOF

    async def pour(self, take: Callable[[bytes], None]) -> None:
        """Give `take` each message the moment it is there, as the wire has it; return at the end.

        Raises:
            AioRpcError: The status, when it is not OK.
        """
        failure: list[Exception] = []

        def guarded(message: bytes) -> None:
            try:
                take(message)
            except Exception as error:
                # In the connection's callback it would end all calls.
                failure.append(error)
                self.cancel()

        try:
            self._take = guarded
            if (stream := self._stream) is not None:
                while stream.inbox and not failure:
                    guarded(stream.pop())
                stream.take = guarded
            await self._over()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if failure:
            raise failure[0]
        self._raise()


class _ManyRequests(Call):
    """Its request is many messages, from an iterator or written."""

    _sending: asyncio.Task[None] | None = None

    async def write(self, request: Any) -> None:
        await self._until_open()
        if self._stream is None or self._status is not None:
            if self._status is not None and self._status.code is grpc.StatusCode.OK:
                raise asyncio.InvalidStateError("the call is over")
            self._raise()
            return
        message = self._serialize(request) if self._serialize is not None else request
        try:
            if not self._stream.send(message):
                await self._stream.drained()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self._status is not None:
            self._raise()

    async def done_writing(self) -> None:
        await self._until_open()
        if self._stream is not None and self._status is None:
            self._stream.end([])

    def send_all(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        """Write what the iterator gives, in a task that ends with the call."""
        self._sending = self._loop.create_task(self._send_all(requests))
        self.add_done_callback(self._stop_sending)

    async def _send_all(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        try:
            if isinstance(requests, AsyncIterable):
                async for request in requests:
                    await self.write(request)
            else:
                for request in requests:
                    await self.write(request)
            await self.done_writing()
        except grpc.aio.AioRpcError:
            return  # the call is over, and says so itself
        except Exception as error:
            # The caller's iterator failed: the request is not what it meant to say.
            log.info("requests failed", error=type(error).__name__)
            self.cancel()
        finally:
            if isinstance(requests, AsyncGenerator):
                await requests.aclose()

    def _stop_sending(self, _: object) -> None:
        if self._sending is not None:
            self._sending.cancel()


class UnaryUnaryCall(_OneRequest, _OneAnswer, grpc.aio.UnaryUnaryCall[Any, Any]):
    """One message, one answer."""


class UnaryStreamCall(_OneRequest, _ManyAnswers, grpc.aio.UnaryStreamCall[Any, Any]):
    """One message, many answers."""


class StreamUnaryCall(_ManyRequests, _OneAnswer, grpc.aio.StreamUnaryCall[Any, Any]):
    """Many messages, one answer."""


class StreamStreamCall(_ManyRequests, _ManyAnswers, grpc.aio.StreamStreamCall[Any, Any]):
    """Many messages both ways."""
