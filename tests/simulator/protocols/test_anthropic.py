"""The messages API of the simulator: what it refuses, and how it plays its script."""

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


def make_body(*messages: tuple[str, Any], **fields: Any) -> dict[str, Any]:
    message_list = [{"role": role, "content": content} for role, content in messages] or [
        {"role": "user", "content": "hello"}
    ]
    return {"model": "sim-1", "max_tokens": 2000, "messages": message_list} | fields


async def read_events(http: aiohttp.ClientSession, sim: Simulator, request_body: Any) -> list[Any]:
    reader, received = SseReader(), list[Any]()
    async with http.post(f"{sim.base_url}/messages", json=request_body | {"stream": True}) as response:
        assert response.status == 200, await response.text()
        async for chunk in response.content.iter_any():
            for frame in reader.feed(chunk):
                data = orjson.loads(frame.data)
                assert frame.event == data["type"]
                received.append(data)
    return received


async def test_blocks_open_and_close_around_their_deltas(http: aiohttp.ClientSession) -> None:
    steps = [{"reasoning": ["a", "b"]}, {"content": "c"}, {"content": "d"}, {"toolCall": "f", "id": "t1"}]
    async with simulator([{"steps": steps}]) as sim:
        received = await read_events(http, sim, make_body())
    outline = [(event["type"], event.get("index"), event.get("delta", {}).get("type")) for event in received]
    start, stop = "content_block_start", "content_block_stop"
    assert outline == [
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
    assert received[-2]["delta"]["stop_reason"] == "tool_use"
    assert received[-2]["usage"]["output_tokens"] == 5


async def test_the_built_in_answer_calls_the_tool_and_reports_its_result(http: aiohttp.ClientSession) -> None:
    weather = {"name": "mock_city_weather", "input_schema": {"type": "object", "properties": {"city": {}}}}
    request_body = make_body(("user", "weather in New York?"), tools=[weather])
    async with simulator() as sim, http.post(f"{sim.base_url}/messages", json=request_body) as response:
        *thought, call = (await response.json())["content"]
        assert call["input"] == {"city": "New York"}
        result = {"type": "tool_result", "tool_use_id": call["id"], "content": [{"type": "text", "text": '{"t":21}'}]}
        request_body["messages"] += [
            {"role": "assistant", "content": [*thought, call]},
            {"role": "user", "content": [result]},
        ]
        async with http.post(f"{sim.base_url}/messages", json=request_body) as response:
            content = (await response.json())["content"]
    assert "t 21" in content[-1]["text"]


@pytest.mark.parametrize(
    ("request_body", "message"),
    [
        ("not json", "line 1"),
        (make_body(max_tokens=None), "max_tokens: Field required"),
        (make_body(model=""), "model: Field required"),
        (make_body(("system", "x")), "messages.0.role"),
        (make_body(("user", " ")), "non-whitespace"),
        (make_body(("user", [])), "non-empty content"),
        (make_body(("user", "x"), ("assistant", [CALL]), ("user", "y")), "t1"),
        (make_body(("user", "x"), ("assistant", [CALL])), "t1"),
        (make_body(("user", [RESULT])), "unexpected `tool_use_id`"),
        (
            make_body(("user", "x"), ("assistant", [{"type": "thinking", "thinking": "a", "signature": "forged"}])),
            "Invalid `signature`",
        ),
        (make_body(thinking={"type": "enabled", "budget_tokens": 2000}), "must be greater than"),
        (
            make_body(thinking={"type": "enabled", "budget_tokens": 1024}, tool_choice={"type": "any"}),
            "forces tool use",
        ),
        (make_body(thinking={"type": "enabled", "budget_tokens": 1024}, temperature=0.5), "temperature"),
        (
            make_body(
                ("user", "x"),
                ("assistant", [CALL]),
                ("user", [RESULT]),
                thinking={"type": "enabled", "budget_tokens": 1024},
            ),
            "Expected `thinking`",
        ),
        (make_body(tools=[{"name": "f"}]), "input_schema"),
    ],
)
async def test_the_simulator_refuses_what_anthropic_refuses(
    http: aiohttp.ClientSession, request_body: Any, message: str
) -> None:
    data = request_body if isinstance(request_body, str) else orjson.dumps(request_body)
    async with simulator() as sim, http.post(f"{sim.base_url}/messages", data=data) as response:
        assert response.status == 400
        error = (await response.json())["error"]
    assert error["type"] == "invalid_request_error"
    assert message in error["message"]


async def test_the_version_header_is_required() -> None:
    async with (
        asyncio.timeout(100),
        aiohttp.ClientSession() as http,
        simulator() as sim,
        http.post(f"{sim.base_url}/messages", json=make_body()) as response,
    ):
        assert response.status == 400


async def test_a_recorded_stream_replaces_the_whole_answer(http: aiohttp.ClientSession) -> None:
    raw = 'event: ping\ndata: {"type":"ping"}\n\n'
    script = [{"steps": [{"raw": raw}, {"end": True}], "opening": False}]
    async with simulator(script) as sim:
        assert await read_events(http, sim, make_body()) == [{"type": "ping"}]


async def test_usage_and_finish_are_sent_where_the_script_has_them(http: aiohttp.ClientSession) -> None:
    steps = [{"usage": {"output_tokens": 1}}, {"content": "a"}, {"finish": "length"}]
    async with simulator([{"steps": steps}]) as sim:
        received = await read_events(http, sim, make_body())
    deltas = [event for event in received if event["type"] == "message_delta"]
    assert [(delta["delta"]["stop_reason"], delta["usage"]) for delta in deltas] == [
        (None, {"output_tokens": 1}),
        ("max_tokens", {"output_tokens": 1}),
    ]
