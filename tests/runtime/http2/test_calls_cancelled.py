"""Leaving and being late, at each phase of a call: the other side hears of it at once, and the connection lives on."""

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


class Left:
    """A handler that only leaving ends; it says when it began and when, and by what, it was ended."""

    def __init__(self, phase: str) -> None:
        self._phase = phase
        self.began, self.ended = asyncio.Event(), asyncio.Event()
        self.by: type[BaseException] | None = None
        self.task: asyncio.Task[Any] | None = None
        self.heard = 0

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
            self.heard += 1

    async def was_left(self, server: Stack) -> bool:
        async with within(HEARD_S):
            await self.ended.wait()
        # grpcio first fails what is being read or written, with an error of its own.
        return server == "grpcio" or self.by is asyncio.CancelledError


def add(left: Left) -> Any:
    async def echo(requests: Any, context: Any) -> Any:
        async for request in requests:
            yield request

    return handlers(unary=left.unary, stream=left.stream, upload=left.upload, both=echo)


async def lives_on(caller: Any) -> bool:
    """Whether another call over the same channel is served."""
    return [message async for message in caller.both(iter([b"a", b""]))] == [b"a", b""]


PHASES = ["before the first answer", "between answers", "in full flow", "behind a slow reader"]


@between
@pytest.mark.parametrize("phase", PHASES)
async def test_a_reader_that_leaves_ends_the_handler(client: Stack, server: Stack, phase: str) -> None:
    left = Left(phase)
    async with connecting(client, server, add(left)) as caller:
        call = caller.stream(b"")
        await left.began.wait()
        if phase != PHASES[0]:
            assert await call.read()
        if phase == "behind a slow reader":
            await asyncio.sleep(0.1)
        assert call.cancel()
        assert await left.was_left(server)
        assert await call.code() is grpc.StatusCode.CANCELLED
        assert call.cancelled()
        assert not call.cancel()
        assert await lives_on(caller)


@between
async def test_a_task_that_is_cancelled_while_it_reads_cancels_its_call(client: Stack, server: Stack) -> None:
    left = Left("between answers")
    async with connecting(client, server, add(left)) as caller:
        call = caller.stream(b"")
        assert await call.read() == b"first"
        reading = asyncio.create_task(call.read())
        await asyncio.sleep(0.01)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        assert await left.was_left(server)
        assert await lives_on(caller)


@between
@pytest.mark.parametrize("by_task", [False, True])
async def test_a_unary_caller_that_leaves_ends_the_handler(client: Stack, server: Stack, by_task: bool) -> None:
    left = Left("")
    async with connecting(client, server, add(left)) as caller:
        call = caller.unary(b"")

        async def wait() -> None:
            await call

        waiting = asyncio.create_task(wait())
        await left.began.wait()
        (waiting if by_task else call).cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await left.was_left(server)
        assert await lives_on(caller)


@between
@pytest.mark.parametrize("request_", [b"few", MANY], ids=["slow", "in full flow"])
async def test_a_sender_that_leaves_ends_the_handler(client: Stack, server: Stack, request_: bytes) -> None:
    left = Left("")
    closed = asyncio.Event()

    async def requests() -> Any:
        try:
            while True:
                yield request_
                await asyncio.sleep(0.01 if request_ == b"few" else 0)
        finally:
            closed.set()

    async with connecting(client, server, add(left)) as caller:
        call = caller.upload(requests())
        while left.heard < 3:
            await asyncio.sleep(0.001)
        call.cancel()
        assert await left.was_left(server)
        assert await call.code() is grpc.StatusCode.CANCELLED
        async with within(HEARD_S):
            await closed.wait()
        assert await lives_on(caller)


@between
@pytest.mark.parametrize("phase", PHASES)
async def test_a_deadline_ends_both_sides(client: Stack, server: Stack, phase: str) -> None:
    left = Left(phase)
    async with connecting(client, server, add(left)) as caller:
        await caller.channel.channel_ready()
        call = caller.stream(b"", timeout=0.2)
        if phase != PHASES[0]:
            with suppress(grpc.aio.AioRpcError):  # on a busy machine it has passed by then
                await call.read()
        code = await call.code()
        # Behind a reader who does not read the server can only reset; grpcio's clock may be later than ours.
        assert code is grpc.StatusCode.DEADLINE_EXCEEDED or (phase == PHASES[3] and client == "grpcio")
        assert await left.was_left(server)
        assert await lives_on(caller)


@between
async def test_a_handler_knows_the_deadline(client: Stack, server: Stack) -> None:
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
async def test_a_deadline_that_has_passed_fails_at_once(client: Stack, server: Stack, timeout: float) -> None:
    left = Left("")
    async with connecting(client, server, add(left)) as caller:
        assert await code_of(caller.unary(b"", timeout=timeout)) is grpc.StatusCode.DEADLINE_EXCEEDED
        assert await lives_on(caller)


@between
async def test_a_stream_that_has_ended_is_not_cancelled_by_it(client: Stack, server: Stack) -> None:
    async def stream(request: bytes, context: Any) -> Any:
        yield b"a"

    async with connecting(client, server, handlers(stream=stream)) as caller:
        call = caller.stream(b"")
        assert [message async for message in call] == [b"a"]
        assert await call.code() is grpc.StatusCode.OK
        assert not call.cancel()
        assert (call.cancelled(), call.done()) == (False, True)
