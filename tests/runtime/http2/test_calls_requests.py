"""Requests of many messages: uploads, and streams in both directions."""

import asyncio
from typing import Any

import grpc
import pytest

from tests.support.http2.ends import SERVICE, Stack, between, connecting, handlers

GRPCIO_FAILS = "Internal error from Core"
"""What grpcio's client reports, every third time, if a reply arrives while it writes; with its own server too
(1.85)."""


async def count_bytes(requests: Any, context: Any) -> bytes:
    return b"%d" % sum([len(request) async for request in requests])


async def echo(requests: Any, context: Any) -> Any:
    async for request in requests:
        yield request


@between
async def test_an_upload_is_complete_when_it_is_answered(client: Stack, server: Stack) -> None:
    async with connecting(client, server, handlers(upload=count_bytes)) as caller:
        assert await caller.upload(iter([b"x" * 100_000] * 50)) == b"5000000"
        assert await caller.upload(iter([])) == b"0"


@between
async def test_an_upload_may_be_written_by_hand(client: Stack, server: Stack) -> None:
    async with connecting(client, server, handlers(upload=count_bytes)) as caller:
        call = caller.upload()
        for _ in range(3):
            await call.write(b"abc")
        await call.done_writing()
        assert await call == b"9"


@between
@pytest.mark.parametrize("code", [grpc.StatusCode.OK, grpc.StatusCode.FAILED_PRECONDITION])
async def test_an_upload_that_is_answered_early_stops(client: Stack, server: Stack, code: grpc.StatusCode) -> None:
    stopped = asyncio.Event()

    async def first(requests: Any, context: Any) -> bytes:
        async for request in requests:
            if code is not grpc.StatusCode.OK:
                await context.abort(code, "enough")
            return request
        return b""

    async def forever() -> Any:
        try:
            while True:
                yield b"x" * 50_000
        finally:
            stopped.set()

    async with connecting(client, server, handlers(upload=first)) as caller:
        call = caller.upload(forever())
        if await call.details() == GRPCIO_FAILS and client == "grpcio":
            return
        assert await call.code() is code
        if code is grpc.StatusCode.OK:
            assert await call == b"x" * 50_000
        await stopped.wait()


@between
async def test_a_failing_request_iterator_ends_its_call(client: Stack, server: Stack) -> None:
    ended = asyncio.Event()

    async def upload(requests: Any, context: Any) -> bytes:
        try:
            return await count_bytes(requests, context)
        finally:
            ended.set()

    async def failing() -> Any:
        yield b"x"
        raise ZeroDivisionError

    async with connecting(client, server, handlers(upload=upload)) as caller:
        call = caller.upload(failing())
        assert await call.code() is not grpc.StatusCode.OK
        await ended.wait()


@between
async def test_messages_can_alternate_in_both_directions(client: Stack, server: Stack) -> None:
    async with connecting(client, server, handlers(both=echo)) as caller:
        call = caller.both()
        for size in (0, 1, 100_000, 5):
            await call.write(b"x" * size)
            assert await call.read() == b"x" * size
        await call.done_writing()
        assert await call.read() is grpc.aio.EOF
        assert await call.code() is grpc.StatusCode.OK


@between
async def test_responses_continue_after_the_requests_have_ended(client: Stack, server: Stack) -> None:
    all_read = asyncio.Event()

    async def late(requests: Any, context: Any) -> Any:
        messages = [request async for request in requests]
        all_read.set()
        for request in messages:
            yield request
            await asyncio.sleep(0.01)

    async with connecting(client, server, handlers(both=late)) as caller:
        call = caller.both(iter([b"a", b"b"]))
        await all_read.wait()
        assert [message async for message in call] == [b"a", b"b"]


@between
async def test_writing_to_a_failed_call_raises(client: Stack, server: Stack) -> None:
    async def refuse(requests: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, "no")
        yield b""

    async with connecting(client, server, handlers(both=refuse)) as caller:
        call = caller.both()
        assert await call.code() is grpc.StatusCode.PERMISSION_DENIED
        with pytest.raises((grpc.aio.AioRpcError, asyncio.InvalidStateError)):
            await call.write(b"x")


@pytest.mark.parametrize(
    ("client", "server"), [("ours", "ours"), ("grpcio", "ours"), ("local", "local"), ("queued", "queued")]
)
@pytest.mark.parametrize("method", ["unary", "stream"])
@pytest.mark.parametrize("messages", [[], [b"pay", b"pay"], [b"pay", b""], [b"pay"] * 100])
async def test_a_call_of_one_request_with_another_number_fails_and_does_nothing(
    client: Stack, server: Stack, method: str, messages: list[bytes]
) -> None:
    handled: list[bytes] = []

    async def unary(request: bytes, context: Any) -> bytes:
        handled.append(request)
        return b"paid"

    async def stream(request: bytes, context: Any) -> Any:
        yield await unary(request, context)

    async with connecting(client, server, handlers(unary=unary, stream=stream)) as caller:
        call: Any = caller.channel.stream_stream(f"/{SERVICE}/{method}")(iter(messages))
        assert await call.code() is grpc.StatusCode.INTERNAL
        assert await caller.unary(b"once") == b"paid"
    assert handled == [b"once"]


@pytest.mark.parametrize(
    ("client", "server"), [("ours", "ours"), ("ours", "grpcio"), ("local", "local"), ("queued", "queued")]
)
@pytest.mark.parametrize("count", [0, 2, 100])
async def test_a_call_of_one_response_with_another_number_fails(client: Stack, server: Stack, count: int) -> None:
    async def both(requests: Any, context: Any) -> Any:
        for _ in range(count):
            yield b"paid"

    async with connecting(client, server, handlers(both=both)) as caller:
        call: Any = caller.channel.unary_unary(f"/{SERVICE}/both")(b"pay")
        with pytest.raises(grpc.aio.AioRpcError):
            await call
        assert await call.code() is grpc.StatusCode.INTERNAL
