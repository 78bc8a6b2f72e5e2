"""Which connections are reused, and which are not."""

import asyncio
import socket
from typing import Any

import pytest

from headrace.errors import HeadraceError, ProviderUnavailable
from services.llm_gateway.http import pool as pools
from services.llm_gateway.http.client import STALE_S, opening_stream
from services.llm_gateway.http.pool import Pool
from tests.support.llm_gateway.scripted import END, ORDINARY, Exchange, ask, chunk, read, serving_script

HELLO = ORDINARY + chunk(b"hello") + END


async def hello(exchange: Exchange) -> None:
    await exchange.say(HELLO)


async def test_an_abandoned_body_closes_its_connection() -> None:
    async def endless(exchange: Exchange) -> None:
        await exchange.say(ORDINARY)
        while True:
            await exchange.say(chunk(b"x"), step=10)

    async with Pool() as pool, serving_script(endless) as server:
        async with opening_stream(pool, ask(server)) as stream:
            assert await stream.push_body(lambda _: False)
        await server.closed.wait()


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(HELLO.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1), id="it said so"),
        pytest.param(HELLO + HELLO, id="it said more than it was asked"),
        pytest.param(HELLO + b"x", id="it said something else"),
        pytest.param(HELLO.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"Transfer", b"X"), id="it is of HTTP/1.0"),
    ],
)
async def test_a_connection_that_cannot_be_kept_alive_is_not_reused(answer: bytes) -> None:
    async def say(exchange: Exchange) -> None:
        await exchange.say(answer)
        if b"HTTP/1.0" in answer:
            exchange.hang_up()

    async with Pool() as pool, serving_script(say) as server:
        for _ in range(2):
            await read(pool, ask(server))
        assert server.connections == 2


async def test_bytes_on_an_idle_connection_close_it() -> None:
    async with Pool() as pool, serving_script(hello) as server:
        await read(pool, ask(server))
        await server.exchanges[0].say(ORDINARY + chunk(b"forged") + END)
        await server.closed.wait()
        assert await read(pool, ask(server)) == b"hello"
        assert server.connections == 2


async def test_a_fully_read_refusal_keeps_its_connection() -> None:
    async def refuse(exchange: Exchange) -> None:
        await exchange.say(b"HTTP/1.1 429 Slow\r\nContent-Length: 2\r\nRetry-After: 7\r\n\r\n{}")

    async with Pool() as pool, serving_script(refuse) as server:
        for _ in range(2):
            with pytest.raises(HeadraceError) as caught:
                await read(pool, ask(server))
            assert caught.value.retry_after_s == 7
        assert server.connections == 1


async def test_a_connection_that_the_server_closed_while_idle_is_not_used() -> None:
    async with Pool() as pool, serving_script(hello) as server:
        await read(pool, ask(server))
        server.exchanges[0].hang_up()
        await asyncio.sleep(0.05)
        assert await read(pool, ask(server)) == b"hello"
        assert [exchange.connection for exchange in server.exchanges] == [1, 2]


async def test_a_reused_connection_closed_during_the_request_is_replaced_once() -> None:
    async def close_the_second(exchange: Exchange) -> None:
        if len(server.exchanges) == 2:
            exchange.hang_up()
        else:
            await exchange.say(HELLO)

    async with Pool() as pool, serving_script(close_the_second) as server:
        for _ in range(2):
            assert await read(pool, ask(server)) == b"hello"
        assert [exchange.connection for exchange in server.exchanges] == [1, 1, 2]


async def test_a_new_connection_that_is_closed_is_not_replaced() -> None:
    async def close_all_but_the_first(exchange: Exchange) -> None:
        if len(server.exchanges) > 1:
            exchange.hang_up()
        else:
            await exchange.say(HELLO)

    async with Pool() as pool, serving_script(close_all_but_the_first) as server:
        await read(pool, ask(server))
        with pytest.raises(ProviderUnavailable):
            await read(pool, ask(server))
        assert [exchange.connection for exchange in server.exchanges] == [1, 1, 2]


@pytest.mark.parametrize(
    ("partial_response", "after_s"), [(b"H", 0.0), (b"", STALE_S + 0.1)], ids=["a byte came", "it took long"]
)
async def test_a_request_the_server_may_have_started_is_not_repeated(partial_response: bytes, after_s: float) -> None:
    async def die_over_the_second(exchange: Exchange) -> None:
        if len(server.exchanges) == 1:
            await exchange.say(HELLO)
            return
        await asyncio.sleep(after_s)
        exchange.writer.write(partial_response)
        exchange.hang_up()

    async with Pool() as pool, serving_script(die_over_the_second) as server:
        await read(pool, ask(server))
        with pytest.raises(ProviderUnavailable):
            await read(pool, ask(server))
        assert len(server.exchanges) == 2


async def test_idle_connections_above_the_limit_are_closed() -> None:
    async with Pool() as pool, serving_script(hello) as server:
        calls = pools.IDLE_MAX + 5
        connections = await asyncio.gather(*(pool.open_connection(server.origin) for _ in range(calls)))
        for connection in connections:
            pool.give_back(connection, is_reusable=True)
        assert sum(connection.is_open for connection in connections) == pools.IDLE_MAX


async def test_closing_the_pool_closes_idle_connections() -> None:
    async with serving_script(hello) as server:
        async with Pool() as pool:
            await read(pool, ask(server))
            assert not server.closed.is_set()
        await server.closed.wait()


async def test_small_writes_are_sent_at_once() -> None:
    async with Pool() as pool, serving_script(hello) as server:
        connection = await pool.open_connection(server.origin)
        transport: Any = connection._transport  # pyright: ignore[reportPrivateUsage] - nobody else needs the socket
        option = transport.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        pool.give_back(connection, is_reusable=False)
    assert option
