"""Many streams at once, of random sizes, read with random pauses and cancelled at random: every byte arrives as it was
sent, and nothing is left over.
"""

import asyncio
import random
from typing import Any

import grpc
import pytest
import uvloop

from services.runtime.http2.server.server import Server
from tests.support.http2.channel import Channel
from tests.support.http2.ends import ANYWHERE, TEST_TIMEOUT_S, Caller, Stack, between, code_of, connecting, handlers

STREAMS, STREAMS_NIGHTLY = 300, 1700
"""Number of streams, in each of three pairs on each of two loops: 10,000 in the nightly run."""

AT_A_TIME = 50
SIZES = (0, 1, 4, 16, 200, 5000, 16_379, 16_380, 40_000, 70_000, 300_000)
"""Sizes of a message: around one frame, and larger than a window."""

WEIGHTS = (4, 8, 10, 20, 20, 4, 1, 1, 1, 0.5, 0.1)
CANCEL_RATIO = 0.05


def messages(seed: int) -> list[bytes]:
    """Return the messages of the stream with this seed."""
    dice = random.Random(seed)
    sizes = dice.choices(SIZES, WEIGHTS, k=dice.randrange(6))
    return [dice.randbytes(size) for size in sizes]


async def stream(request: bytes, context: Any) -> Any:
    for message in messages(int(request)):
        yield message
        if message[:1] < b"\x08":
            await asyncio.sleep(0)


async def both(requests: Any, context: Any) -> Any:
    async for request in requests:
        yield request


async def read_one(caller: Caller, seed: int) -> None:
    """Read a stream, or send its messages and read them back; sometimes cancel it early."""
    dice = random.Random(-seed - 1)
    expected = messages(seed)
    call = caller.both(iter(expected)) if seed % 4 == 0 else caller.stream(b"%d" % seed)
    received: list[bytes] = []
    cancel_at = dice.randrange(4) if dice.random() < CANCEL_RATIO else None
    while (message := await call.read()) is not grpc.aio.EOF:
        received.append(message)
        if len(received) == cancel_at:
            call.cancel()
            assert received == expected[: len(received)]
            return
        if dice.random() < 0.1:
            await asyncio.sleep(dice.random() / 200)
    assert received == expected
    assert await call.code() is grpc.StatusCode.OK


@between
@pytest.mark.parametrize("count", [STREAMS, pytest.param(STREAMS_NIGHTLY, marks=pytest.mark.nightly)])
async def test_every_byte_of_every_stream_arrives(client: Stack, server: Stack, count: int) -> None:
    first = count if isinstance(asyncio.get_running_loop(), uvloop.Loop) else 0
    seeds = iter(range(first, first + count))

    async def read_some(caller: Caller) -> None:
        for seed in seeds:
            await read_one(caller, seed)

    async with connecting(client, server, handlers(stream=stream, both=both)) as caller, asyncio.TaskGroup() as group:
        for _ in range(AT_A_TIME):
            group.create_task(read_some(caller))


@between
@pytest.mark.parametrize("size", [0, 1, 16 * 1024 - 5, 16 * 1024 - 4, 16 * 1024, 64 * 1024, 1024 * 1024])
async def test_a_message_of_any_size_is_transferred(client: Stack, server: Stack, size: int) -> None:
    async def unary(request: bytes, context: Any) -> bytes:
        return request

    message = random.Random(size).randbytes(size)
    async with connecting(client, server, handlers(unary=unary, both=both)) as caller:
        assert await caller.unary(message) == message
        assert [answer async for answer in caller.both(iter([message] * 3))] == [message] * 3


async def test_the_largest_message_between_services_is_transferred() -> None:
    size = 64 * 1024 * 1024
    server = Server(message_bytes_max=size)

    async def unary(request: bytes, context: Any) -> bytes:
        return request

    handlers(unary=unary)(server)
    port = server.add_insecure_port(ANYWHERE)
    await server.start()
    async with asyncio.timeout(TEST_TIMEOUT_S), Channel(f"127.0.0.1:{port}", message_bytes_max=size) as over:
        message = random.Random(0).randbytes(size)
        assert await Caller(over).unary(message) == message
        assert await code_of(Caller(over).unary(message + b"x")) is grpc.StatusCode.RESOURCE_EXHAUSTED
    await server.stop(None)
