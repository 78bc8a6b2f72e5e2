"""A caller that reads slowly slows the provider down through the gateway, and misses nothing."""

import orjson

from headrace.streams import reading
from tests.support.llm_gateway.gateway import Asking
from tests.support.llm_gateway.scripted import END, ORDINARY, Exchange, chunk, serving_script
from tests.support.timing import until_still

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
