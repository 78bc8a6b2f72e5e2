"""The body is pushed from the socket at the reader's pace, until the reader stops or the provider is silent."""

import asyncio
import time

import pytest

from headrace.errors import BadFrame, ProviderUnavailable, StreamStalled
from services.llm_gateway.http.client import opening_stream
from services.llm_gateway.http.pool import Pool
from tests.support.llm_gateway.scripted import (
    END,
    ORDINARY,
    Answer,
    Exchange,
    ask,
    chunk,
    read,
    serving_script,
    streaming,
)
from tests.support.timing import within

CLOSED_WITHIN_S = 0.5


async def send_first_piece(exchange: Exchange) -> None:
    await exchange.say(ORDINARY + chunk(b"a"))
    await exchange.nothing_more()


async def send_first_piece_later(exchange: Exchange) -> None:
    await exchange.say(ORDINARY)
    await asyncio.sleep(0.05)
    await exchange.say(chunk(b"a"))
    await exchange.nothing_more()


async def test_each_piece_is_delivered_before_the_next_is_sent() -> None:
    taken: asyncio.Queue[bytes] = asyncio.Queue()

    async def one_by_one(exchange: Exchange) -> None:
        await exchange.say(ORDINARY)
        for number in range(20):
            await exchange.say(chunk(b"%d" % number))
            assert await taken.get() == b"%d" % number
        await exchange.say(END)

    async with streaming(one_by_one) as (_, stream):
        assert not await stream.push_body(lambda piece: taken.put_nowait(piece) is None)


async def test_the_request_body_is_freed_when_the_provider_answers() -> None:
    async with Pool() as pool, serving_script(send_first_piece) as server:
        request = ask(server, b'"a long conversation"')
        async with opening_stream(pool, request):
            assert not request.body


@pytest.mark.parametrize("provider", [send_first_piece, send_first_piece_later])
async def test_an_error_of_the_reader_closes_the_response_and_is_raised(provider: Answer) -> None:
    def take(_: bytes) -> bool:
        raise BadFrame("no")

    async with Pool() as pool, serving_script(provider) as server:
        with pytest.raises(BadFrame, match="no"):
            async with opening_stream(pool, ask(server)) as stream:
                await stream.push_body(take)
        async with within(CLOSED_WITHIN_S):
            await server.closed.wait()


async def test_a_bug_in_the_reader_is_raised_unchanged() -> None:
    async with streaming(send_first_piece_later) as (_, stream):
        with pytest.raises(ZeroDivisionError):
            await stream.push_body(lambda _: 1 // 0 == 0)


async def test_silence_before_and_after_the_first_delta_has_separate_limits() -> None:
    async with Pool() as pool, serving_script(send_first_piece) as server:
        with pytest.raises(StreamStalled, match="sent no first delta within 300 ms"):
            await read(pool, ask(server, firstDeltaMs=300))
        async with opening_stream(pool, ask(server, idleMs=200)) as stream:
            stream.start_idle_watch()
            with pytest.raises(StreamStalled, match="fell silent within 200 ms"):
                await stream.push_body(lambda _: True)
        async with within(CLOSED_WITHIN_S):
            await server.closed.wait()


def steady(chunks: int) -> Answer:
    """Return an answer that sends `chunks` chunks, a tenth of a second apart."""

    async def say(exchange: Exchange) -> None:
        await exchange.say(ORDINARY)
        for _ in range(chunks):
            await asyncio.sleep(0.1)
            await exchange.say(chunk(b"a"))
        await exchange.say(END)

    return say


async def test_a_stalled_gateway_does_not_blame_the_provider() -> None:
    def take(_: bytes) -> bool:
        time.sleep(0.5)
        return True

    async with streaming(steady(4), idleMs=300) as (_, stream):
        stream.start_idle_watch()
        assert not await stream.push_body(take)


async def test_a_connection_broken_between_reads_is_reported_at_the_next_read() -> None:
    async with streaming(send_first_piece) as (server, stream):
        assert await stream.push_body(lambda _: False)
        server.exchanges[0].writer.transport.abort()
        await asyncio.sleep(0.05)
        with pytest.raises(ProviderUnavailable):
            await stream.push_body(lambda _: True)
