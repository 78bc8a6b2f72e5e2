"""The four kinds of calls: one message or many, in each direction."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import Any

import grpc
import structlog

from services.runtime.http2.client.call import Call
from services.runtime.http2.stream import Stream

log = structlog.get_logger()


class _OneRequest(Call):
    is_repeatable = True
    request: bytes

    def send_request(self, stream: Stream) -> None:
        stream.send_last(self.request)


class _OneAnswer(Call):
    def __await__(self) -> Generator[Any, None, Any]:
        try:
            yield from self.make_end_waiter().__await__()
        except asyncio.CancelledError:
            self.cancel()
            raise
        self.raise_status()
        if self.stream is None or len(self.stream.inbox) != 1:
            said = "no answer" if self.stream is None or not self.stream.inbox else "more than one answer"
            raise grpc.aio.AioRpcError(
                grpc.StatusCode.INTERNAL, grpc.aio.Metadata(), grpc.aio.Metadata(), f"the server gave {said}"
            )
        return self.decode_message(self.stream.inbox[0])


class _ManyAnswers(Call):
    async def __aiter__(self) -> AsyncIterator[Any]:
        while (message := await self.read()) is not grpc.aio.EOF:
            yield message

    async def read(self) -> Any:
        try:
            while True:
                await self.wait_until_open()
                # A call that is made again gets another stream.
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

    async def push_messages(self, take: Callable[[bytes], None]) -> None:
        """Pass each message's bytes to `take` on arrival; return, or raise the status, at the end."""
        failure: list[Exception] = []

        def deliver_message(message: bytes) -> None:
            try:
                take(message)
            except Exception as error:
                # In the connection's callback it would end all calls.
                failure.append(error)
                self.cancel()

        try:
            self.on_message = deliver_message
            if (stream := self.stream) is not None:
                while stream.inbox and not failure:
                    deliver_message(stream.pop_message())
                stream.take = deliver_message
            await self.make_end_waiter()
        except asyncio.CancelledError:
            self.cancel()
            raise
        if failure:
            raise failure[0]
        self.raise_status()


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
            self.stream.end_local([])

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
            return  # the call is over, and says so itself
        except Exception as error:
            # The caller's iterator failed: the request is not what it meant to say.
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
