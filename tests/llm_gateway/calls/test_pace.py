"""The pace of an answer: the gaps that a caller sees are the provider's.

Within 20 ms for the median: buffering or merging shows as gaps of nothing and of two, and the noise of a busy machine,
which is the benchmark's to measure, does not fail a good gateway.
"""

import asyncio
from itertools import pairwise
from statistics import median

import orjson

from headrace.streams import reading
from tests.support.llm_gateway.gateway import Asking
from tests.support.llm_gateway.scripted import END, ORDINARY, Exchange, chunk, serving_script
from tests.support.timing import until_still

CHUNKS = 40
PACE_S = 0.1


async def test_forty_chunks_over_four_seconds_keep_their_gaps(asking: Asking) -> None:
    async with asking() as gateway:
        request = gateway.request(model=f"bench-{CHUNKS}x{PACE_S * 1000:.0f}ms")
        loop, at_s = asyncio.get_running_loop(), list[float]()
        async with reading(gateway.llm.StreamChat(request, timeout=150)) as replies:
            async for delta in replies:
                if delta.content:
                    at_s.append(loop.time())
    off_s = [abs(later - earlier - PACE_S) for earlier, later in pairwise(at_s)]
    assert len(at_s) == CHUNKS
    assert median(off_s) < 0.02


FRAMES = 2500
TEXT = "x" * 10_000
HELD_BYTES_MAX = 8 * 1024 * 1024
"""Sockets, of which the provider's grows to 4 MB, one read, and the line of answers to the caller; it has 25 MB."""


def frame(text: str) -> bytes:
    return chunk(b"data: " + orjson.dumps({"choices": [{"delta": {"content": text}}]}) + b"\n\n")


async def test_a_caller_that_stops_reading_stops_the_provider(asking: Asking) -> None:
    written = 0

    async def flood(exchange: Exchange) -> None:
        nonlocal written
        await exchange.say(ORDINARY)
        for number in range(FRAMES):
            await exchange.say(data := frame(f"{number} {TEXT}"))
            written += len(data)
        await exchange.say(chunk(b"data: [DONE]\n\n") + END)

    async with (
        serving_script(flood) as server,
        asking(baseUrl=server.url) as gateway,
        reading(gateway.llm.StreamChat(gateway.request(), timeout=120)) as replies,
    ):
        await anext(replies)
        await until_still(lambda: written)
        assert 0 < written < HELD_BYTES_MAX
        texts = [delta.content async for delta in replies if delta.content]
    assert [text.partition(" ")[0] for text in texts] == [str(number) for number in range(FRAMES)]
