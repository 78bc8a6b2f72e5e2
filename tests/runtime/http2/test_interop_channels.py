"""The life of a channel: while no server is there, when servers start and stop, and over which addresses."""

import asyncio
import gc
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.runtime.http2.limits import Limits
from tests.support.http2.channel import Channel
from tests.support.http2.ends import (
    BYTES_MAX,
    TEST_TIMEOUT_S,
    Caller,
    Stack,
    between,
    channel,
    code_of,
    connecting,
    handlers,
    serving,
)
from tests.support.http2.wire import PREFACE

State = grpc.ChannelConnectivity


async def return_one(request: bytes, context: Any) -> bytes:
    return b"one"


def find_free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@between
async def test_a_channel_finds_a_server_that_starts_late(client: Stack, server: Stack) -> None:
    address = find_free_address()
    async with asyncio.timeout(TEST_TIMEOUT_S), channel(client, address) as over:
        caller = Caller(over)
        assert await code_of(caller.unary(b"")) is grpc.StatusCode.UNAVAILABLE
        waiting = asyncio.ensure_future(caller.unary(b"", wait_for_ready=True))
        ready = asyncio.create_task(over.channel_ready())
        assert await code_of(caller.unary(b"", timeout=0.3, wait_for_ready=True)) is grpc.StatusCode.DEADLINE_EXCEEDED
        async with serving(server, handlers(unary=return_one), address=address):
            assert await waiting == b"one"
            await ready
            assert over.get_state() is State.READY


@between
async def test_a_channel_reconnects_when_its_server_is_back(client: Stack, server: Stack) -> None:
    address = find_free_address()
    async with asyncio.timeout(TEST_TIMEOUT_S), channel(client, address) as over:
        caller = Caller(over)
        for _ in range(3):
            async with serving(server, handlers(unary=return_one), address=address):
                assert await caller.unary(b"", wait_for_ready=True) == b"one"
            assert await code_of(caller.unary(b"")) is grpc.StatusCode.UNAVAILABLE


@between
async def test_calls_of_a_killed_server_fail_as_unavailable(client: Stack, server: Stack) -> None:
    has_started, may_end = asyncio.Event(), asyncio.Event()

    async def stream(request: bytes, context: Any) -> Any:
        has_started.set()
        yield b"a"
        await may_end.wait()

    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving(server, handlers(stream=stream)) as (running, address),
        channel(client, address) as over,
    ):
        call = Caller(over).stream(b"")
        assert await call.read() == b"a"
        await running.stop(None)
        assert await code_of(call.read()) is grpc.StatusCode.UNAVAILABLE


@between
async def test_a_stopping_server_ends_its_streams_and_accepts_no_calls(client: Stack, server: Stack) -> None:
    go_on = asyncio.Event()

    async def stream(request: bytes, context: Any) -> Any:
        yield b"a"
        await go_on.wait()
        yield b"b"

    async with (
        asyncio.timeout(TEST_TIMEOUT_S),
        serving(server, handlers(stream=stream, unary=return_one)) as (running, address),
        channel(client, address) as over,
    ):
        caller = Caller(over)
        call = caller.stream(b"")
        assert await call.read() == b"a"
        stopping = asyncio.create_task(running.stop(10))
        async with asyncio.timeout(50):
            while await code_of(caller.unary(b"", timeout=0.5)) is not grpc.StatusCode.UNAVAILABLE:
                await asyncio.sleep(0.01)
        assert not stopping.done()
        go_on.set()
        assert (await call.read(), await call.read()) == (b"b", grpc.aio.EOF)
        assert await call.code() is grpc.StatusCode.OK
        await stopping


@between
async def test_while_one_server_ends_its_streams_the_next_serves_new_calls(client: Stack, server: Stack) -> None:
    go_on = asyncio.Event()

    async def stream(request: bytes, context: Any) -> Any:
        yield b"old"
        await go_on.wait()
        yield b"done"

    address = find_free_address()
    async with asyncio.timeout(TEST_TIMEOUT_S), channel(client, address) as over:
        caller = Caller(over)
        async with serving(server, handlers(stream=stream), address=address) as (old, _):
            call = caller.stream(b"", wait_for_ready=True)
            assert await call.read() == b"old"
            stopping = asyncio.create_task(old.stop(10))
            await asyncio.sleep(0.05)
            async with serving(server, handlers(unary=return_one), address=address):
                assert await caller.unary(b"", wait_for_ready=True) == b"one"
                go_on.set()
                assert (await call.read(), await call.read()) == (b"done", grpc.aio.EOF)
                await stopping


@pytest.mark.parametrize("client", ["ours", "grpcio"])
async def test_no_call_fails_while_servers_are_replaced(client: Stack) -> None:
    """Each server leaves with GOAWAY; calls it does not accept any more are repeated."""
    address, keeps_calling, served = find_free_address(), True, 0

    async def call(caller: Caller) -> None:
        nonlocal served
        while keeps_calling:
            assert await caller.unary(b"", wait_for_ready=True) == b"one"
            served += 1

    async with asyncio.timeout(TEST_TIMEOUT_S), channel(client, address) as over, asyncio.TaskGroup() as group:
        calls = [group.create_task(call(Caller(over))) for _ in range(5)]
        for _ in range(4):
            async with serving("ours", handlers(unary=return_one), address=address) as (running, _):
                goal = served + 30
                while served < goal:
                    await asyncio.sleep(0.005)
                await running.stop(5)
        keeps_calling = False
        async with serving("ours", handlers(unary=return_one), address=address):
            await asyncio.wait(calls)


@between
@pytest.mark.parametrize("address", ["unix:{folder}/s", "127.0.0.1:0", "[::1]:0", "localhost:0"])
async def test_a_channel_reaches_every_kind_of_address(
    client: Stack, server: Stack, address: str, tmp_path: Path
) -> None:
    async with connecting(
        client, server, handlers(unary=return_one), address=address.format(folder=tmp_path)
    ) as caller:
        assert await caller.unary(b"") == b"one"


@between
async def test_channels_to_one_server_have_separate_connections(client: Stack, server: Stack) -> None:
    peers: set[str] = set()

    async def unary(request: bytes, context: Any) -> bytes:
        peers.add(context.peer())
        return b""

    async with connecting(client, server, handlers(unary=unary)) as caller:
        await caller.unary(b"")
        async with serving(server, handlers(unary=unary)) as (_, address):
            channels = [channel(client, address) for _ in range(3)]
            for over in channels:
                await Caller(over).unary(b"")
            await channels[0].close()
            for over in channels[1:]:
                await Caller(over).unary(b"")
                await over.close()
        await caller.unary(b"")
    assert len(peers) == 4


async def test_a_channel_reports_changes_of_its_state() -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), serving("ours", handlers(unary=return_one)) as (running, address):
        over = channel("ours", address)
        assert over.get_state() is State.IDLE
        assert over.get_state(try_to_connect=True) is State.IDLE
        await over.wait_for_state_change(State.IDLE)
        await over.channel_ready()
        await running.stop(None)
        await over.wait_for_state_change(State.READY)
        assert await code_of(Caller(over).unary(b"")) is grpc.StatusCode.UNAVAILABLE
        await over.close()
        assert over.get_state() is State.SHUTDOWN
        assert await code_of(Caller(over).unary(b"")) is grpc.StatusCode.CANCELLED


async def test_closing_a_channel_ends_its_calls() -> None:
    ended = asyncio.Event()

    async def unary(request: bytes, context: Any) -> bytes:
        try:
            await asyncio.sleep(2 * TEST_TIMEOUT_S)
        finally:
            ended.set()
        return b""

    async with asyncio.timeout(TEST_TIMEOUT_S), serving("ours", handlers(unary=unary)) as (_, address):
        over = channel("ours", address)
        call = Caller(over).unary(b"")
        waiting = Caller(channel("ours", find_free_address())).unary(b"", wait_for_ready=True)
        await call.wait_for_connection()
        await over.close()
        assert await call.code() is grpc.StatusCode.CANCELLED
        await ended.wait()
        assert waiting.cancel()


CLOSE_TIMEOUT_S = 20.0
"""The time within which only a close ends a connection with PATIENT."""

PATIENT = Limits(connect_s=TEST_TIMEOUT_S, preface_s=TEST_TIMEOUT_S)


@asynccontextmanager
async def silent_server() -> AsyncGenerator[tuple[str, asyncio.Queue[asyncio.StreamReader]]]:
    """Run a server that accepts connections and sends nothing; yield its address, and readers whose client has
    started."""
    readers: asyncio.Queue[asyncio.StreamReader] = asyncio.Queue()
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        with suppress(asyncio.IncompleteReadError):  # closed before it began
            await reader.readexactly(len(PREFACE))
            readers.put_nowait(reader)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}", readers
    finally:
        server.close()
        for writer in writers:
            writer.transport.abort()


async def test_closing_a_channel_closes_a_connection_that_waits_for_its_server() -> None:
    async with asyncio.timeout(CLOSE_TIMEOUT_S), silent_server() as (address, readers):
        over = Channel(address, message_bytes_max=BYTES_MAX, limits=PATIENT)
        call = Caller(over).unary(b"")
        reader = await readers.get()
        await over.close()
        await reader.read()
        assert await call.code() is grpc.StatusCode.CANCELLED


@pytest.mark.parametrize("turns", range(12))
async def test_closing_a_channel_while_it_connects_logs_no_error(turns: int, logged: Any) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S), silent_server() as (address, _):
        over = Channel(address, message_bytes_max=BYTES_MAX)
        call = Caller(over).unary(b"")
        for _ in range(turns):
            await asyncio.sleep(0)
        await over.close()
        assert await call.code() is grpc.StatusCode.CANCELLED
        del over, call
        await asyncio.sleep(0)
        gc.collect()
    assert logged.errors == []
