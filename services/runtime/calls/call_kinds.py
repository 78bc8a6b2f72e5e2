"""The four kinds of calls: one message or many, in each direction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Awaitable, Callable, Generator, Iterable
from typing import Any

import grpc
import structlog

from services.runtime.calls.client_call import Call
from services.runtime.calls.metadata import OK, Status

log = structlog.get_logger()


class _OneRequest(Call):
    is_repeatable = True
    request: bytes

    def get_request(self) -> bytes:
        return self.request


class _OneAnswer(Call):
    def __await__(self) -> Generator[Any, None, Any]:
        try:
            yield from self.make_end_waiter().__await__()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.status is not OK:
            self.raise_status()
        assert self.stream is not None, "a call that succeeded has a stream"
        return self.decode_message(self.stream.inbox[0])

    def finish_call(self, status: Status) -> None:
        answers = self.stream.inbox if self.stream is not None else ()
        if status.code is grpc.StatusCode.OK and len(answers) != 1:
            count = "more than one answer" if answers else "no answer"
            status = Status(grpc.StatusCode.INTERNAL, f"the server gave {count}")
        super().finish_call(status)


class _ManyAnswers(Call):
    def __aiter__(self) -> AsyncIterator[Any]:
        return self

    async def __anext__(self) -> Any:
        message = await self.read()
        if message is grpc.aio.EOF:
            raise StopAsyncIteration
        return message

    async def read(self) -> Any:
        try:
            while True:
                if self.stream is None:
                    await self.wait_until_open()
                # A repeated call gets another stream.
                if (stream := self.stream) is None or stream.inbox or self.status is not None:
                    break
                await stream.wait_for_message()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if stream is not None and stream.inbox:
            return self.decode_message(stream.pop_message())
        self.raise_status()
        return grpc.aio.EOF

    async def push_messages(
        self, take: Callable[[bytes], bool | None], wait_until_drained: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """Pass each message's bytes to `take` on arrival; return, or raise the status, at the end.

        If `take` returns False, messages stay here, and no more than the stream's window, for `wait_until_drained`.
        """
        push = _Push(self, take)
        self.add_done_callback(push.wake)
        try:
            while not push.is_over:
                await push.wait()
                if push.is_paused:
                    if wait_until_drained is not None:
                        await wait_until_drained()
                    push.resume()
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            push.stop()
        if push.failure is not None:
            raise push.failure
        self.raise_status()


class _Push:
    """Messages of one call on their way to a callback."""

    def __init__(self, call: _ManyAnswers, take: Callable[[bytes], bool | None]) -> None:
        self.is_paused = False
        self.failure: Exception | None = None
        self._call = call
        self._take = take
        self._waiting: asyncio.Future[None] | None = None
        self.resume()

    @property
    def is_over(self) -> bool:
        """Whether all messages were read and no more will arrive."""
        stream = self._call.stream
        has_message = stream is not None and bool(stream.inbox)
        return self.failure is not None or (self._call.status is not None and not has_message)

    def resume(self) -> None:
        """Deliver the messages that arrived in the meantime, then those that arrive."""
        self.is_paused = False
        self._call.on_message = self._deliver_message
        if (stream := self._call.stream) is None:
            return
        while stream.inbox and not self.is_paused and self.failure is None:
            self._deliver_message(stream.pop_message())
        if not self.is_paused:
            stream.take = self._deliver_message

    def stop(self) -> None:
        """Stop passing on messages; the call releases this object."""
        self._call.on_message = None
        if self._call.stream is not None:
            self._call.stream.take = None

    async def wait(self) -> None:
        """Wait until the call ends or `take` returns False."""
        if self.is_over or self.is_paused:
            return
        self._waiting = asyncio.get_running_loop().create_future()  # an Event takes 760 bytes more
        try:
            await self._waiting
        finally:
            self._waiting = None

    def wake(self, _: object = None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _deliver_message(self, message: bytes) -> None:
        try:
            has_room = self._take(message)
        except Exception as error:
            # Raised in the connection's callback, it would end all calls.
            self.failure = error
            self._call.cancel()
            self.wake()
            return
        if has_room is False:
            self.is_paused = True
            self.stop()
            self.wake()


class _ManyRequests(Call):
    async def write(self, request: Any) -> None:
        await self.wait_until_open()
        if self.stream is None or self.status is not None:
            if self.status is not None and self.status.code is grpc.StatusCode.OK:
                raise asyncio.InvalidStateError("the call is over")
            self.raise_status()
            return
        message = self.encode_request(request)
        try:
            if not self.stream.send(message):
                await self.stream.wait_until_drained()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if self.status is not None:
            self.raise_status()

    async def done_writing(self) -> None:
        await self.wait_until_open()
        if self.stream is not None and self.status is None:
            self.stream.end_local()

    def send_all(self, requests: AsyncIterable[Any] | Iterable[Any]) -> None:
        """Write all requests in a task that ends with the call."""
        sending = asyncio.create_task(self._send_all(requests))

        def stop_sending(_: object) -> None:
            sending.cancel()

        self.add_done_callback(stop_sending)

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
            return  # the call is over and reports its own error
        except Exception as error:
            # The caller's iterator failed, so the request is incomplete.
            log.info("requests failed", error=type(error).__name__)
            self.cancel()
        finally:
            if isinstance(requests, AsyncGenerator):
                await requests.aclose()


class UnaryUnaryCall(_OneRequest, _OneAnswer, grpc.aio.UnaryUnaryCall[Any, Any]):
    """One message, one answer."""


class UnaryStreamCall(_OneRequest, _ManyAnswers, grpc.aio.UnaryStreamCall[Any, Any]):
    """One message, many answers."""


class StreamUnaryCall(_ManyRequests, _OneAnswer, grpc.aio.StreamUnaryCall[Any, Any]):
    """Many messages, one answer."""


class StreamStreamCall(_ManyRequests, _ManyAnswers, grpc.aio.StreamStreamCall[Any, Any]):
    """Many messages both ways."""
