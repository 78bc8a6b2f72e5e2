"""Load: one delta repeated many times, which the simulator writes without the machinery of other answers."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import orjson
import pytest

from headrace.sse import SseReader
from services.simulator.server import Simulator, simulator

MESSAGES = [{"role": "user", "content": "go"}]


@pytest.fixture
async def http() -> AsyncGenerator[aiohttp.ClientSession]:
    async with asyncio.timeout(100), aiohttp.ClientSession(headers={"anthropic-version": "2023-06-01"}) as session:
        yield session


def rules(times: int, pace_ms: float, **rule: Any) -> list[dict[str, Any]]:
    return [
        {"steps": [{"content": "<"}, {"repeat": "ab", "times": times}, {"content": ">"}], "paceMs": pace_ms, **rule}
    ]


async def read_openai_texts(http: aiohttp.ClientSession, sim: Simulator) -> list[str]:
    """Return the non-empty texts of the answer, after checking that it is complete and its usage counts them."""
    body = {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": MESSAGES}
    async with http.post(f"{sim.base_url}/chat/completions", json=body) as response:
        frames = [frame.data for frame in SseReader().feed(await response.read())]
    assert frames.pop() == b"[DONE]"
    *decoded, usage = [orjson.loads(frame) for frame in frames]
    texts = [frame["choices"][0]["delta"].get("content") for frame in decoded]
    found = [text for text in texts if text]
    assert usage["usage"]["completion_tokens"] == len(found)
    return found


@pytest.mark.parametrize("pace_ms", [0, 2])
@pytest.mark.parametrize("times", [1, 2, 200])
async def test_each_repetition_is_a_separate_delta_in_its_place(
    http: aiohttp.ClientSession, times: int, pace_ms: float
) -> None:
    async with simulator(rules(times, pace_ms)) as sim:
        assert await read_openai_texts(http, sim) == ["<", *["ab"] * times, ">"]


async def test_an_anthropic_answer_repeats_inside_its_block(http: aiohttp.ClientSession) -> None:
    body = {"model": "m", "max_tokens": 9, "stream": True, "messages": MESSAGES}
    async with simulator(rules(100, 1)) as sim, http.post(f"{sim.base_url}/messages", json=body) as response:
        events = [orjson.loads(frame.data) for frame in SseReader().feed(await response.read())]
    assert "".join(event.get("delta", {}).get("text", "") for event in events) == "<" + "ab" * 100 + ">"
    assert [event["type"] for event in events].count("content_block_start") == 1
    assert events[-2]["usage"]["output_tokens"] == 102


async def test_the_first_delta_is_sent_with_the_headers(http: aiohttp.ClientSession) -> None:
    async with simulator([{"steps": [{"repeat": "ab", "times": 3}], "opening": False, "paceMs": 1}]) as sim:
        assert await read_openai_texts(http, sim) == ["ab"] * 3


async def test_an_answer_not_streamed_or_written_byte_by_byte_is_written_out(http: aiohttp.ClientSession) -> None:
    async with simulator(rules(3, 1, oneByteWrites=True)) as sim:
        assert await read_openai_texts(http, sim) == ["<", "ab", "ab", "ab", ">"]
        async with http.post(f"{sim.base_url}/chat/completions", json={"model": "m", "messages": MESSAGES}) as response:
            whole = await response.json()
    assert whole["choices"][0]["message"]["content"] == "<ababab>"


async def test_the_pace_of_repeated_frames_is_kept(http: aiohttp.ClientSession) -> None:
    async with simulator(rules(50, 4)) as sim:
        started_s = asyncio.get_running_loop().time()
        await read_openai_texts(http, sim)
        assert asyncio.get_running_loop().time() - started_s > 50 * 0.004


@pytest.mark.parametrize("pace_ms", [0, 1])
async def test_a_reader_that_leaves_ends_the_repetition(http: aiohttp.ClientSession, pace_ms: float) -> None:
    async with simulator(rules(1_000_000, pace_ms)) as sim:
        body = {"model": "m", "stream": True, "messages": MESSAGES}
        async with http.post(f"{sim.base_url}/chat/completions", json=body) as response:
            assert await response.content.readany()
        await sim.until_idle()
        assert sim.requests[0].closed_by_client


async def test_the_simulator_waits_for_a_reader_that_stops_reading(http: aiohttp.ClientSession) -> None:
    """Sockets hold some of these 40 MB; most of it must be written after the reader has resumed, at its pace."""
    script = [{"steps": [{"repeat": "x" * 1_000_000, "times": 40}], "paceMs": 10}]
    async with simulator(script) as sim:
        body = {"model": "m", "stream": True, "messages": MESSAGES}
        async with http.post(f"{sim.base_url}/chat/completions", json=body) as response:
            await asyncio.sleep(0.45)
            resumed_s = asyncio.get_running_loop().time()
            assert (await response.read()).count(b"x" * 1_000_000) == 40
        assert asyncio.get_running_loop().time() - resumed_s > 0.2
