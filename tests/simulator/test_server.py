"""The simulator over HTTP, read by a byte-level SSE reader like any client, and as a process."""

import asyncio
import signal
import sys
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from headrace.sse import SseReader
from services.simulator.request_log import PrefixCache
from services.simulator.script import BadScript
from services.simulator.server import Simulator, simulator
from tests.support.programs import run_to_end

WEATHER = {
    "type": "function",
    "function": {"name": "mock_city_weather", "parameters": {"type": "object", "properties": {"city": {}, "date": {}}}},
}
BASH = {"type": "function", "function": {"name": "_bash_", "parameters": {"properties": {"command": {}}}}}


@pytest.fixture
async def http() -> AsyncGenerator[aiohttp.ClientSession]:
    async with asyncio.timeout(100), aiohttp.ClientSession() as session:
        yield session


def user(text: str, **body: Any) -> dict[str, Any]:
    return {"model": "sim-1", "stream": True, "messages": [{"role": "user", "content": text}], **body}


async def ask(http: aiohttp.ClientSession, sim: Simulator, body: Any) -> list[Any]:
    """Return the decoded frames of a streamed answer, with `[DONE]` unchanged."""
    reader, frames = SseReader(), list[Any]()
    async with http.post(f"{sim.base_url}/chat/completions", json=body) as response:
        assert response.status == 200, await response.text()
        async for chunk in response.content.iter_any():
            frames += [frame.data for frame in reader.feed(chunk)]
    return [data.decode() if data == b"[DONE]" else orjson.loads(data) for data in frames]


def join_texts(frames: list[Any], key: str) -> str:
    choices = [frame["choices"][0]["delta"] for frame in frames if frame != "[DONE]" and frame["choices"]]
    return "".join(delta.get(key) or "" for delta in choices)


def read_arguments(frames: list[Any]) -> Any:
    deltas = [frame["choices"][0]["delta"] for frame in frames if frame != "[DONE]" and frame["choices"]]
    calls = [delta["tool_calls"][0]["function"]["arguments"] for delta in deltas if "tool_calls" in delta]
    return orjson.loads("".join(calls))


async def test_a_plain_question_is_answered_word_by_word_with_reasoning_first(http: aiohttp.ClientSession) -> None:
    async with simulator() as sim:
        frames = await ask(http, sim, user("What is a headrace?", stream_options={"include_usage": True}))
    assert frames[-1] == "[DONE]"
    assert frames[-2]["usage"]["total_tokens"] > 0
    assert "What is a headrace" in join_texts(frames, "content")
    assert join_texts(frames, "reasoning_content")
    assert len(frames) > 30


async def test_the_weather_tool_is_called_and_then_its_result_is_reported(http: aiohttp.ClientSession) -> None:
    question = user("How is the weather in New York today?", tools=[WEATHER])
    async with simulator() as sim:
        frames = await ask(http, sim, question)
        assert read_arguments(frames).keys() == {"city", "date"}
        assert read_arguments(frames)["city"] == "New York"
        assert frames[-2]["choices"][0]["finish_reason"] == "tool_calls"
        call = {"id": "c1", "type": "function", "function": {"name": "mock_city_weather", "arguments": "{}"}}
        question["messages"] += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c1", "content": '{"temperatureC":21}'},
        ]
        answer = join_texts(await ask(http, sim, question), "content")
    assert "temperatureC 21" in answer


@pytest.mark.parametrize(
    ("text", "city"), [("上海今天天气怎么样?", "上海"), ("weather in Hangzhou", "Hangzhou"), ("weather?", "Shanghai")]
)
async def test_the_city_is_taken_from_the_question(http: aiohttp.ClientSession, text: str, city: str) -> None:
    async with simulator() as sim:
        assert read_arguments(await ask(http, sim, user(text, tools=[WEATHER])))["city"] == city


@pytest.mark.parametrize(
    ("text", "sent"),
    [('Call mock_city_weather with {"city": "Oslo"}', {"city": "Oslo"}), ("call mock_city_weather.", {})],
)
async def test_the_tool_that_the_question_names_is_called(http: aiohttp.ClientSession, text: str, sent: object) -> None:
    async with simulator() as sim:
        assert read_arguments(await ask(http, sim, user(text, tools=[WEATHER]))) == sent


@pytest.mark.parametrize("text", ["Call city_sea with {}", "Call city_sea with {oops}", "Call me"])
async def test_a_tool_that_is_not_offered_is_not_called(http: aiohttp.ClientSession, text: str) -> None:
    async with simulator() as sim:
        frames = await ask(http, sim, user(text, tools=[WEATHER]))
    assert "You asked" in join_texts(frames, "content")


async def test_the_command_in_backticks_is_run(http: aiohttp.ClientSession) -> None:
    async with simulator() as sim:
        frames = await ask(http, sim, user("Please run `ls -l` for me", tools=[BASH]))
    assert read_arguments(frames) == {"command": "ls -l"}


REMINDER = "<system_reminder>\nLeft of the budget: the weather in Rome.\n</system_reminder>"


async def test_reminders_and_uploads_of_the_suite_are_not_taken_for_the_users_words(
    http: aiohttp.ClientSession,
) -> None:
    parts = [{"type": "text", "text": text} for text in ("Hello", REMINDER)]
    upload = {"role": "user", "content": [{"type": "text", "text": "[File: a.txt]\nthe weather in Rome"}]}
    question = user("", tools=[WEATHER])
    question["messages"] = [{"role": "user", "content": parts}, upload]
    call = {"id": "c1", "type": "function", "function": {"name": "mock_city_weather", "arguments": "{}"}}
    result = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "fog"},
        {"role": "user", "content": REMINDER},
    ]
    async with simulator([{"match": {"text": "^scripted$"}, "steps": [{"content": "yes"}]}]) as sim:
        answer = join_texts(await ask(http, sim, question), "content")
        question["messages"] += result
        after = join_texts(await ask(http, sim, question), "content")
        scripted = join_texts(await ask(http, sim, user(f"scripted{REMINDER}")), "content")
    assert answer.startswith("You asked: “Hello”.")
    assert after == "mock_city_weather says: fog"
    assert scripted == "yes"


async def test_a_request_for_a_summary_is_recognised_after_files_too(http: aiohttp.ClientSession) -> None:
    request = "The conversation is about to be compacted: you will continue from your summary."
    texts = [f"[File: a.txt]\n1\n\n{request}", f"Files:\n\n[File: a.txt]\n1\n\n{request}"]
    async with simulator() as sim:
        answers = [join_texts(await ask(http, sim, user(text)), "content") for text in texts]
    assert ["9. Next step" in answer for answer in answers] == [True, True]


async def test_no_tool_is_called_with_tool_choice_none(http: aiohttp.ClientSession) -> None:
    async with simulator() as sim:
        frames = await ask(http, sim, user("weather in Rome", tools=[WEATHER], tool_choice="none"))
    assert join_texts(frames, "content").startswith("You asked")


async def test_without_streaming_the_answer_is_one_body(http: aiohttp.ClientSession) -> None:
    async with simulator() as sim:
        body = user("weather in Paris", tools=[WEATHER]) | {"stream": False}
        async with http.post(f"{sim.base_url}/chat/completions", json=body) as response:
            choice = (await response.json())["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert orjson.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["city"] == "Paris"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("not json", "line 1 column 1"),
        ({"messages": [{"role": "user", "content": "x"}]}, "model parameter"),
        ({"model": "m", "messages": []}, "non-empty"),
        ({"model": "m", "messages": [{"role": "tool", "tool_call_id": "c", "content": ""}]}, "preceding"),
        (
            {
                "model": "m",
                "messages": [
                    {"role": "assistant", "tool_calls": [{"id": "c9", "function": {"name": "f", "arguments": ""}}]},
                    {"role": "user", "content": "x"},
                ],
            },
            "c9",
        ),
    ],
)
async def test_the_simulator_refuses_what_a_real_provider_refuses(
    http: aiohttp.ClientSession, body: Any, message: str
) -> None:
    data = body if isinstance(body, str) else orjson.dumps(body)
    async with simulator() as sim, http.post(f"{sim.base_url}/chat/completions", data=data) as response:
        assert response.status == 400
        assert message in (await response.json())["error"]["message"]


async def test_the_first_matching_rule_is_played(http: aiohttp.ClientSession) -> None:
    script = [
        {"match": {"model": "other"}, "steps": [{"content": "no"}]},
        {"match": {"text": "^hel+o$", "turn": 1}, "steps": [{"reasoning": "hm"}, {"content": ["\n\n", " "]}]},
        {"steps": [{"status": 429, "headers": {"Retry-After": "3"}}]},
    ]
    async with simulator(script) as sim:
        frames = await ask(http, sim, user("hello"))
        assert (join_texts(frames, "reasoning_content"), join_texts(frames, "content")) == ("hm", "\n\n ")
        async with http.post(f"{sim.base_url}/chat/completions", json=user("other")) as response:
            assert (response.status, response.headers["Retry-After"]) == (429, "3")


async def test_a_cut_step_resets_the_connection(http: aiohttp.ClientSession) -> None:
    async with simulator([{"steps": [{"content": "a"}, {"cut": True}]}]) as sim:
        with pytest.raises(aiohttp.ClientError):
            await ask(http, sim, user("x"))


async def test_one_byte_writes_arrive_byte_by_byte(http: aiohttp.ClientSession) -> None:
    async with simulator([{"steps": [{"content": "水车"}], "oneByteWrites": True}]) as sim:
        async with http.post(f"{sim.base_url}/chat/completions", json=user("x")) as response:
            sizes = [len(chunk) async for chunk in response.content.iter_any()]
        assert join_texts(await ask(http, sim, user("x")), "content") == "水车"
    assert max(sizes) < 8, "a few bytes may share a read, a frame may not"


async def test_requests_are_recorded_and_a_client_that_leaves_is_noticed(http: aiohttp.ClientSession) -> None:
    async with simulator() as sim:
        async with http.post(f"{sim.base_url}/chat/completions", json=user("x", model="idle")) as response:
            assert await response.content.readany()
            assert sim.open_streams == 1
        await sim.until_idle()
        async with http.get(sim.base_url.replace("/v1", "/simulator/requests")) as response:
            recorded = await response.json()
    assert recorded["openStreams"] == 0
    assert recorded["requests"][0]["body"]["model"] == "idle"
    assert recorded["requests"][0]["closed_by_client"] is True


async def test_a_bench_model_streams_as_many_deltas_as_its_name_says(http: aiohttp.ClientSession) -> None:
    async with simulator() as sim:
        frames = await ask(http, sim, user("x", model="bench-100x0ms"))
    assert join_texts(frames, "content") == " headrace" * 100
    assert not sim.requests[0].closed_by_client


async def test_a_script_can_be_replaced_and_an_invalid_one_is_rejected_naming_the_field(
    http: aiohttp.ClientSession,
) -> None:
    async with simulator() as sim:
        url = sim.base_url.replace("/v1", "/simulator/script")
        async with http.post(url, json=[{"steps": [{"content": "new"}]}]) as response:
            assert response.status == 200
        assert join_texts(await ask(http, sim, user("x")), "content") == "new"
        async with http.post(url, json=[{"steps": [{"contents": "new"}]}]) as response:
            assert response.status == 400
            assert "0.steps.0" in (await response.json())["error"]["message"]
        assert join_texts(await ask(http, sim, user("x")), "content") == "new"


async def test_a_status_must_be_the_only_step() -> None:
    with pytest.raises(BadScript, match="only step"):
        async with simulator([{"steps": [{"content": "x"}, {"status": 500}]}]):
            pass


async def test_the_process_prints_its_address_serves_and_stops_at_sigterm() -> None:
    async with asyncio.timeout(200), aiohttp.ClientSession() as http:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.simulator", "--port", "0", stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        base_url = (await process.stdout.readline()).decode().strip()
        async with http.get(f"{base_url}/models") as response:
            assert "sim-1" in {model["id"] for model in (await response.json())["data"]}
        process.send_signal(signal.SIGTERM)
        assert await process.wait() == 0


async def test_an_invalid_script_is_reported_with_the_place_of_the_error(tmp_path: Path) -> None:
    script = tmp_path / "script.json"
    script.write_text('[{"steps": [{"nothing": 1}]}]')
    code, _, stderr = await run_to_end(sys.executable, "-m", "services.simulator", "--script", script)
    assert code == 2
    assert b"0.steps.0" in stderr


def make_body(*texts: str) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": text} for text in texts]}


LONG = "word " * 2000
"""2,500 tokens."""


@pytest.mark.parametrize(
    ("first", "second", "cached"),
    [
        (make_body(LONG), make_body(LONG, "more"), 2304),
        (make_body(LONG), make_body("other" + LONG), 0),
        (make_body("short"), make_body("short", "more"), 0),
        (make_body(LONG, "a"), {"model": "m", "tools": [1], "messages": make_body(LONG, "a")["messages"]}, 0),
        (make_body(LONG), make_body(LONG[:6000] + "!" + LONG), 1280),
    ],
)
def test_a_prefix_of_an_earlier_request_is_cached(first: dict[str, Any], second: dict[str, Any], cached: int) -> None:
    cache = PrefixCache()

    def measure(body: dict[str, Any]) -> int:
        return cache.measure(body, sum(len(message["content"]) for message in body["messages"]) // 4)

    assert measure(first) == 0
    assert measure(second) == cached
