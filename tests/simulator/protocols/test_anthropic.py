"""The messages API of the simulator: what it refuses, and how its script plays there."""

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import aiohttp
import orjson
import pytest

from headrace.sse import SseReader
from services.simulator.server import Simulator, simulator

VERSION = {"anthropic-version": "2023-06-01"}
CALL = {"type": "tool_use", "id": "t1", "name": "f", "input": {}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": "done"}


@pytest.fixture
async def http() -> AsyncGenerator[aiohttp.ClientSession]:
    async with asyncio.timeout(100), aiohttp.ClientSession(headers=VERSION) as session:
        yield session


def body(*messages: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    said = [{"role": role, "content": content} for role, content in messages] or [{"role": "user", "content": "hello"}]
    return {"model": "sim-1", "max_tokens": 2000, "messages": said} | fields


async def events(http: aiohttp.ClientSession, sim: Simulator, asked: Any) -> list[Any]:
    reader, read = SseReader(), list[Any]()
    async with http.post(f"{sim.base_url}/messages", json=asked | {"stream": True}) as response:
        assert response.status == 200, await response.text()
        async for chunk in response.content.iter_any():
            for frame in reader.feed(chunk):
                data = orjson.loads(frame.data)
                assert frame.event == data["type"]
                read.append(data)
    return read


async def test_blocks_open_and_close_around_their_deltas(http: aiohttp.ClientSession) -> None:
    steps = [{"reasoning": ["a", "b"]}, {"content": "c"}, {"content": "d"}, {"toolCall": "f", "id": "t1"}]
    async with simulator([{"steps": steps}]) as sim:
        read = await events(http, sim, body())
    shown = [(event["type"], event.get("index"), event.get("delta", {}).get("type")) for event in read]
    start, stop = "content_block_start", "content_block_stop"
    assert shown == [
        ("message_start", None, None),
        (start, 0, None),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "thinking_delta"),
        ("content_block_delta", 0, "signature_delta"),
        (stop, 0, None),
        (start, 1, None),
        ("content_block_delta", 1, "text_delta"),
        ("content_block_delta", 1, "text_delta"),
        (stop, 1, None),
        (start, 2, None),
        ("content_block_delta", 2, "input_json_delta"),
        (stop, 2, None),
        ("message_delta", None, None),
        ("message_stop", None, None),
    ]
    assert read[-2]["delta"]["stop_reason"] == "tool_use"
    assert read[-2]["usage"]["output_tokens"] == 5


async def test_the_built_in_answer_calls_the_tool_and_speaks_of_its_result(http: aiohttp.ClientSession) -> None:
    weather = {"name": "mock_city_weather", "input_schema": {"type": "object", "properties": {"city": {}}}}
    asked = body(("user", "weather in New York?"), tools=[weather])
    async with simulator() as sim, http.post(f"{sim.base_url}/messages", json=asked) as response:
        *thought, call = (await response.json())["content"]
        assert call["input"] == {"city": "New York"}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": '{"t":21}'}]}
        asked["messages"] += [{"role": "assistant", "content": [*thought, call]}, {"role": "user", "content": [result]}]
        async with http.post(f"{sim.base_url}/messages", json=asked) as response:
            content = (await response.json())["content"]
    assert "t 21" in content[-1]["text"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("not json", "line 1"),
        (body(max_tokens=None), "max_tokens: Field required"),
        (body(model=""), "model: Field required"),
        (body(("system", "x")), "messages.0.role"),
        (body(("user", " ")), "non-whitespace"),
        (body(("user", [])), "non-empty content"),
        (body(("user", "x"), ("assistant", [CALL]), ("user", "y")), "t1"),
        (body(("user", "x"), ("assistant", [CALL])), "t1"),
        (body(("user", [RESULT])), "unexpected `tool_use_id`"),
        (
            body(("user", "x"), ("assistant", [{"type": "thinking", "thinking": "a", "signature": "forged"}])),
            "Invalid `signature`",
        ),
        (body(thinking={"type": "enabled", "budget_tokens": 2000}), "must be greater than"),
        (body(thinking={"type": "enabled", "budget_tokens": 1024}, tool_choice={"type": "any"}), "forces tool use"),
        (body(thinking={"type": "enabled", "budget_tokens": 1024}, temperature=0.5), "temperature"),
        (
            body(
                ("user", "x"),
                ("assistant", [CALL]),
                ("user", [RESULT]),
                thinking={"type": "enabled", "budget_tokens": 1024},
            ),
            "Expected `thinking`",
        ),
        (body(tools=[{"name": "f"}]), "input_schema"),
    ],
)
async def test_refuses_what_anthropic_refuses(http: aiohttp.ClientSession, asked: Any, said: str) -> None:
    data = asked if isinstance(asked, str) else orjson.dumps(asked)
    async with simulator() as sim, http.post(f"{sim.base_url}/messages", data=data) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["type"] == "invalid_request_error"
    assert said in error["message"]


async def test_the_version_header_is_required() -> None:
    async with (
        asyncio.timeout(100),
        aiohttp.ClientSession() as http,
        simulator() as sim,
        http.post(f"{sim.base_url}/messages", json=body()) as response,
    ):
        assert response.status == 400


async def test_a_recorded_stream_replaces_all_of_it(http: aiohttp.ClientSession) -> None:
    raw = 'event: ping\ndata: {"type":"ping"}\n\n'
    script = [{"steps": [{"raw": raw}, {"end": True}], "opening": False}]
    async with simulator(script) as sim:
        assert await events(http, sim, body()) == [{"type": "ping"}]


async def test_usage_and_finish_are_said_where_the_script_has_them(http: aiohttp.ClientSession) -> None:
    steps = [{"usage": {"output_tokens": 1}}, {"content": "a"}, {"finish": "length"}]
    async with simulator([{"steps": steps}]) as sim:
        read = await events(http, sim, body())
    deltas = [event for event in read if event["type"] == "message_delta"]
    assert [(delta["delta"]["stop_reason"], delta["usage"]) for delta in deltas] == [
        (None, {"output_tokens": 1}),
        ("max_tokens", {"output_tokens": 1}),
    ]
