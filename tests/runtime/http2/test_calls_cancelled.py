"""Cancellation and deadlines in each phase of a call: the other side learns of them at once, and the connection stays
usable.
"""

import asyncio
from contextlib import suppress
from typing import Any

import grpc
import pytest

from tests.support.http2.ends import SILENCE_S, Stack, between, code_of, connecting, handlers
from tests.support.timing import within

HEARD_S = 1.0
"""Cancellation takes a few milliseconds; a busy machine takes more."""

MANY = b"x" * 30_000


class EndlessHandler:
    """A handler that only a cancellation ends; it records when it started, and when and how it ended."""

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        self.by: type[BaseException] | None = None
        self.task: asyncio.Task[Any] | None = None
        self.message_count = 0

    async def unary(self, request: bytes, context: Any) -> bytes:
        await self._watched(self._answer(context))
        return b""

    async def stream(self, request: bytes, context: Any) -> None:
        await self._watched(self._answer(context))

    async def upload(self, requests: Any, context: Any) -> bytes:
        await self._watched(self._read(requests))
        return b""

    async def _watched(self, work: Any) -> None:
        self.task = asyncio.current_task()
        try:
            await work
        except BaseException as error:
            self.by = type(error)
            raise
        finally:
            self.ended.set()

    async def _answer(self, context: Any) -> None:
        self.began.set()
        if self._phase == "between answers":
            await context.write(b"first")
        while self._phase in ("in full flow", "behind a slow reader"):
            await context.write(MANY if self._phase == "behind a slow reader" else b"x")
            await asyncio.sleep(0)
        await asyncio.sleep(SILENCE_S)

    async def _read(self, requests: Any) -> None:
        self.began.set()
        async for _ in requests:
            self.message_count += 1

    async def was_cancelled(self, server: Stack) -> bool:
        async with within(HEARD_S):
            await self.ended.wait()
        # grpcio first fails what is being read or written, with an error of its own.
        return server == "grpcio" or self.by is asyncio.CancelledError


def add(handler: EndlessHandler) -> Any:
    async def echo(requests: Any, context: Any) -> Any:
        async for request in requests:
            yield request

    return handlers(unary=handler.unary, stream=handler.stream, upload=handler.upload, both=echo)


async def serves_another_call(caller: Any) -> bool:
    """Return whether another call over the same channel is served."""
    return [message async for message in caller.both(iter([b"a", b""]))] == [b"a", b""]


PHASES = ["before the first answer", "between answers", "in full flow", "behind a slow reader"]


@between
@pytest.mark.parametrize("phase", PHASES)
async def test_a_reader_that_cancels_ends_the_handler(client: Stack, server: Stack, phase: str) -> None:
    handler = EndlessHandler(phase)
    async with connecting(client, server, add(handler)) as caller:
        call = caller.stream(b"")
        await handler.began.wait()
        if phase != PHASES[0]:
            assert await call.read()
        if phase == "behind a slow reader":
            await asyncio.sleep(0.1)
        assert call.cancel()
        assert await handler.was_cancelled(server)
        assert await call.code() is grpc.StatusCode.CANCELLED
        assert call.cancelled()
        assert not call.cancel()
        assert await serves_another_call(caller)


@between
async def test_cancelling_a_task_that_reads_cancels_its_call(client: Stack, server: Stack) -> None:
    handler = EndlessHandler("between answers")
    async with connecting(client, server, add(handler)) as caller:
        call = caller.stream(b"")
        assert await call.read() == b"first"
        reading = asyncio.create_task(call.read())
        await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await handler.was_cancelled(server)
        assert await serves_another_call(caller)


@between
@pytest.mark.parametrize("by_task", [False, True])
async def test_a_unary_caller_that_cancels_ends_the_handler(client: Stack, server: Stack, by_task: bool) -> None:
    handler = EndlessHandler("")
    async with connecting(client, server, add(handler)) as caller:
        call = caller.unary(b"")

        async def wait() -> None:
            await call

        waiting = asyncio.create_task(wait())
        await handler.began.wait()
        (waiting if by_task else call).cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await handler.was_cancelled(server)
        assert await serves_another_call(caller)


@between
@pytest.mark.parametrize("request_", [b"few", MANY], ids=["slow", "in full flow"])
async def test_a_sender_that_cancels_ends_the_handler(client: Stack, server: Stack, request_: bytes) -> None:
    handler = EndlessHandler("")
    closed = asyncio.Event()

    async def requests() -> Any:
        try:
            while True:
                yield request_
                await asyncio.sleep(0.01 if request_ == b"few" else 0)
        finally:
            closed.set()

    async with connecting(client, server, add(handler)) as caller:
        call = caller.upload(requests())
        while handler.message_count < 3:
            await asyncio.sleep(0.001)
        call.cancel()
        assert await handler.was_cancelled(server)
        assert await call.code() is grpc.StatusCode.CANCELLED
        async with within(HEARD_S):
            await closed.wait()
        assert await serves_another_call(caller)


@between
@pytest.mark.parametrize("phase", PHASES)
async def test_a_deadline_ends_both_sides(client: Stack, server: Stack, phase: str) -> None:
    handler = EndlessHandler(phase)
    async with connecting(client, server, add(handler)) as caller:
        await caller.channel.channel_ready()
        call = caller.stream(b"", timeout=0.2)
        if phase != PHASES[0]:
            with suppress(grpc.aio.AioRpcError):  # on a busy machine it has passed by then
                await call.read()
        code = await call.code()
        # If the client does not read, the server can only reset; grpcio's clock may be behind ours.
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED or (phase == PHASES[3] and client == "grpcio")
        assert await handler.was_cancelled(server)
        assert await serves_another_call(caller)


@between
async def test_a_handler_can_read_the_deadline(client: Stack, server: Stack) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        return repr(context.time_remaining()).encode()

    async with connecting(client, server, handlers(unary=unary)) as caller:
        # grpcio rounds it up.
        assert 50 < float(await caller.unary(b"", timeout=60)) < 61
        assert 9.9e5 < float(await caller.unary(b"", timeout=1e6)) < 1.01e6
        assert (await caller.unary(b"")).decode() in ("None", "inf")
        assert caller.unary(b"").time_remaining() is None
        assert 50 < caller.unary(b"", timeout=60).time_remaining() < 61


@between
@pytest.mark.parametrize("timeout", [0, -1, 1e-9])
async def test_an_expired_deadline_fails_at_once(client: Stack, server: Stack, timeout: float) -> None:
    handler = EndlessHandler("")
    async with connecting(client, server, add(handler)) as caller:
        assert await code_of(caller.unary(b"", timeout=timeout)) is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await serves_another_call(caller)


@between
async def test_a_finished_stream_can_not_be_cancelled(client: Stack, server: Stack) -> None:
    async def stream(request: bytes, context: Any) -> Any:
        yield b"a"

    async with connecting(client, server, handlers(stream=stream)) as caller:
        call = caller.stream(b"")
        assert [message async for message in call] == [b"a"]
        assert await call.code() is grpc.StatusCode.OK
        assert not call.cancel()
        assert (call.cancelled(), call.done()) == (False, True)
