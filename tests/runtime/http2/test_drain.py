"""Graceful ends of connections, when a server stops or they are old: running calls may end, and no new ones start."""

import asyncio
import socket
from contextlib import AsyncExitStack, suppress

import grpc
import pytest
from hyperframe.frame import GoAwayFrame, PingFrame

from services.runtime.http2.limits import Limits
from tests.support.http2.channel import Channel
from tests.support.http2.ends import BYTES_MAX, Caller, code_of
from tests.support.http2.victim import OTHER, service, victim
from tests.support.http2.wire import ACK, PING, PREFACE, SETTINGS, call, headers_of, message, opening, peer, raw, window
from tests.support.timing import within


async def test_an_upload_that_ends_in_time_is_answered() -> None:
    async with victim() as server, peer(server.port) as client:
        await client.send(opening(1, headers_of("upload")), message(1, b"abc", end=False))
        await client.pong()
        async with asyncio.TaskGroup() as group:
            group.create_task(server.server.stop(5))
            for _ in ("it will take no new calls", "it takes none"):
                await client.until(GoAwayFrame)
            await client.send(call(3, "unary"), message(1, b"def"))
            await client.closed()
        assert 1 in client.answered()
        assert 3 in client.resets()
        assert server.handled.uploads == 1


async def test_a_call_that_does_not_end_in_time_is_cancelled() -> None:
    clock = asyncio.get_running_loop().time
    async with victim() as server, Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX) as channel:
        stream = Caller(channel).stream(b"1")
        await stream.read()
        started = clock()
        async with within(2):
            await server.server.stop(0.2)
        assert clock() - started >= 0.199, "but for what the clock rounds"
        assert await code_of(stream.read()) is grpc.StatusCode.UNAVAILABLE
        assert server.handled.running == 0


HOLDING = {
    "a client that said nothing": b"",
    "half a preface": PREFACE[:5],
    "a client that does nothing": PREFACE + SETTINGS,
    "a request that does not come": PREFACE + SETTINGS + opening(1, headers_of("unary")),
    "answers that nobody reads": PREFACE + SETTINGS + window(0, 2**30) + call(1, "stream", b"100000"),
}


@pytest.mark.parametrize("grace_s", [None, 0.1])
@pytest.mark.parametrize("what", HOLDING)
async def test_no_client_delays_a_stopping_server(what: str, grace_s: float | None) -> None:
    async with victim(Limits(last_calls_s=0.2, close_s=0.3)) as server, peer(server.port, greets=False) as client:
        client.writer.transport.pause_reading()  # pyright: ignore[reportAttributeAccessIssue] - a reading transport
        await client.send(HOLDING[what])
        await asyncio.sleep(0.1)
        async with within(1.5):
            await server.server.stop(grace_s)
        assert server.handled.running == 0


async def test_a_stopped_server_frees_its_port() -> None:
    async with victim() as server:
        await server.server.stop(None)
        with pytest.raises(ConnectionError):
            await asyncio.open_connection("127.0.0.1", server.port)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", server.port))


@pytest.mark.parametrize("turns", range(6))
async def test_connections_made_while_a_server_stops_do_not_delay_it(turns: int) -> None:
    async with victim() as server:
        with socket.create_connection(("127.0.0.1", server.port)):
            for _ in range(turns):
                await asyncio.sleep(0)
            async with within(5):
                await server.server.stop(0.1)


async def test_a_started_call_is_not_cancelled_within_the_grace_period() -> None:
    cancelled_count = 0

    async def brief(request: bytes, context: object) -> bytes:
        nonlocal cancelled_count
        try:
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            cancelled_count += 1
            raise
        return request

    async def keep_asking(channel: Channel) -> None:
        call_once = channel.unary_unary(f"/{OTHER}/brief")
        with suppress(grpc.aio.AioRpcError):
            while True:
                # Once the server has gone, another test's may have its port, and may never answer.
                await call_once(b"1", timeout=10)

    for _ in range(20):
        async with victim() as server:
            server.server.add_generic_rpc_handlers((service(brief=grpc.unary_unary_rpc_method_handler(brief)),))
            async with AsyncExitStack() as stack, asyncio.TaskGroup() as group:
                for _ in range(5):
                    channel = Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX)
                    group.create_task(keep_asking(await stack.enter_async_context(channel)))
                await asyncio.sleep(0.02)
                await server.server.stop(5)
    assert not cancelled_count


AGE_S = 0.2


async def test_no_call_fails_while_connections_reach_their_age() -> None:
    async with victim(Limits(), connection_age_s=AGE_S) as server:
        async with Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX) as channel:
            caller = Caller(channel)
            open_stream = caller.stream(b"1")
            await open_stream.read()
            clock = asyncio.get_running_loop().time
            until = clock() + AGE_S * 8
            calls = 0
            while clock() < until:
                answers = await asyncio.gather(*(caller.unary(b"%d" % n) for n in range(20)))
                assert answers == [b"%d" % n for n in range(20)]
                calls += 20
                await asyncio.sleep(0)
            assert not open_stream.done()
            open_stream.cancel()
        await server.idle()
    assert server.handled.begun == calls + 1, "no call was made twice"


async def test_calls_sent_before_the_client_sees_the_goaway_are_served() -> None:
    async with victim(Limits(), connection_age_s=AGE_S) as server, peer(server.port) as client:
        await client.send(call(1, "stream", b"1"))
        first = await client.until(GoAwayFrame)
        assert isinstance(first, GoAwayFrame)
        assert first.last_stream_id == 2**31 - 1
        ping = await client.until(PingFrame)
        assert isinstance(ping, PingFrame)
        await client.send(call(3, "unary"), raw(PING, ACK, 0, ping.opaque_data), call(5, "unary"))
        while not {3, 5} <= client.answered() | client.resets().keys():
            assert await client.next() is not None
        assert 3 in client.answered()
        assert 5 in client.resets()
        last = [frame for frame in client.seen if isinstance(frame, GoAwayFrame)][-1]
        assert last.last_stream_id == 3
        assert server.handled.running == 1, "the stream goes on"
        await client.send(raw(3, 0, 1, b"\0\0\0\x08"))
        assert await client.closed() is not None


async def test_a_client_that_ignores_the_goaway_is_refused_after_a_moment() -> None:
    async with victim(connection_age_s=0.01) as server, peer(server.port) as client:
        await client.send(call(1, "stream", b"1"))
        goaway = await client.until(GoAwayFrame)
        while isinstance(goaway, GoAwayFrame) and goaway.last_stream_id != 1:
            goaway = await client.until(GoAwayFrame)
        await client.send(call(3, "unary"))
        await client.pong()
        assert 3 in client.resets()
        await server.serves_others()
