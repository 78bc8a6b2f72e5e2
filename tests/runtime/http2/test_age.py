"""A connection that is old enough ends in good order: what runs on it goes on, the next call finds another one."""

from __future__ import annotations

import asyncio

from hyperframe.frame import GoAwayFrame, PingFrame

from services.runtime.http2.client.channel import Channel
from services.runtime.http2.limits import Limits
from tests.support.http2.ends import BYTES_MAX, Caller
from tests.support.http2.victim import victim
from tests.support.http2.wire import ACK, PING, call, peer, raw

AGE_S = 0.2


async def test_no_call_fails_while_connections_come_and_go() -> None:
    async with victim(Limits(), connection_age_s=AGE_S) as server:
        async with Channel(f"127.0.0.1:{server.port}", message_bytes_max=BYTES_MAX) as channel:
            caller = Caller(channel)
            long = caller.stream(b"1")
            await long.read()
            clock = asyncio.get_running_loop().time
            until = clock() + AGE_S * 8
            calls = 0
            while clock() < until:
                answers = await asyncio.gather(*(caller.unary(b"%d" % n) for n in range(20)))
                assert answers == [b"%d" % n for n in range(20)]
                calls += 20
                await asyncio.sleep(0)
            assert not long.done()
            long.cancel()
        await server.idle()
    assert server.handled.begun == calls + 1, "no call was made twice"


async def test_calls_on_their_way_are_served_until_the_client_has_heard() -> None:
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


async def test_a_client_that_does_not_answer_is_refused_a_moment_later() -> None:
    async with victim(connection_age_s=0.01) as server, peer(server.port) as client:
        await client.send(call(1, "stream", b"1"))
        goaway = await client.until(GoAwayFrame)
        while isinstance(goaway, GoAwayFrame) and goaway.last_stream_id != 1:
            goaway = await client.until(GoAwayFrame)
        await client.send(call(3, "unary"))
        await client.pong()
        assert 3 in client.resets()
        await server.serves_others()
