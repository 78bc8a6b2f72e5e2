"""The providers' own Python clients against the simulator: what they accept is what the providers send."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import anthropic
import openai
import pytest

from services.simulator.scripts.script import parse_script
from services.simulator.server import Simulator, simulator

SCRIPT: list[dict[str, Any]] = [
    {"match": {"text": "busy"}, "steps": [{"status": 429, "headers": {"Retry-After": "1"}}]},
    {"match": {"text": "overloaded"}, "steps": [{"status": 529}]},
    {"match": {"text": "key"}, "steps": [{"status": 401}]},
    {
        "match": {"text": "weather", "turn": 1},
        "steps": [
            {"reasoning": ["I ", "look."]},
            {"content": ["Let me ", "see."]},
            {"toolCall": "weather", "id": "toolu_1", "index": 0, "arguments": ['{"city":', '"Paris"}']},
            {"toolCall": "time", "id": "toolu_2", "index": 1, "arguments": '{"city":"Oslo"}'},
        ],
    },
    {"match": {"turn": 2}, "steps": [{"reasoning": "So."}, {"content": ["It ", "snows."]}]},
    {"steps": [{"reasoning": ["Hm", "m"]}, {"content": ["水", "车 ", "\n\n"]}], "oneByteWrites": True},
]
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"type": "string"}}}
OPENAI_TOOLS: Any = [
    {"type": "function", "function": {"name": name, "parameters": CITY}} for name in ("weather", "time")
]
ANTHROPIC_TOOLS: Any = [{"name": name, "input_schema": CITY} for name in ("weather", "time")]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture
async def sim() -> AsyncGenerator[Simulator]:
    async with asyncio.timeout(200), simulator(SCRIPT) as sim:
        yield sim


@pytest.fixture
async def openai_client(sim: Simulator) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=sim.base_url, api_key="sk-none", max_retries=0) as client:
        yield client


@pytest.fixture
async def anthropic_client(sim: Simulator) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    url = sim.base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(base_url=url, api_key="sk-none", max_retries=0) as client:
        yield client


def user(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def test_openai_streams_text_reasoning_and_usage(openai_client: openai.AsyncOpenAI) -> None:
    stream = await openai_client.chat.completions.create(
        model="sim-1", messages=user("hello"), stream=True, stream_options={"include_usage": True}
    )
    chunks = [chunk async for chunk in stream]
    deltas = [choice.delta for chunk in chunks for choice in chunk.choices]
    assert "".join(delta.content or "" for delta in deltas) == "水车 \n\n"
    assert "".join((delta.model_extra or {}).get("reasoning_content", "") for delta in deltas) == "Hmm"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 5


async def test_openai_streams_tool_calls(openai_client: openai.AsyncOpenAI) -> None:
    async with openai_client.chat.completions.stream(
        model="sim-1", messages=user("weather"), tools=OPENAI_TOOLS
    ) as stream:
        done = await stream.get_final_completion()
    assert done.choices[0].finish_reason == "tool_calls"
    calls = done.choices[0].message.tool_calls or []
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("toolu_1", "weather", '{"city":"Paris"}'),
        ("toolu_2", "time", '{"city":"Oslo"}'),
    ]


async def test_openai_answers_whole_and_takes_results(openai_client: openai.AsyncOpenAI) -> None:
    messages = user("weather")
    asked = await openai_client.chat.completions.create(model="sim-1", messages=messages, tools=OPENAI_TOOLS)
    messages.append(asked.choices[0].message)
    for call in asked.choices[0].message.tool_calls or []:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "snow"})
    answer = await openai_client.chat.completions.create(model="sim-1", messages=messages, tools=OPENAI_TOOLS)
    assert answer.choices[0].message.content == "It snows."
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0


async def test_anthropic_streams_text_thinking_and_usage(anthropic_client: anthropic.AsyncAnthropic) -> None:
    async with anthropic_client.messages.stream(
        model="sim-1", max_tokens=2048, messages=user("hello"), thinking=THINKING
    ) as stream:
        texts = [text async for text in stream.text_stream]
        done = await stream.get_final_message()
    assert texts == ["水", "车 ", "\n\n"]
    thinking, text = done.content
    assert thinking.type == "thinking"
    assert thinking.thinking == "Hmm"
    assert thinking.signature
    assert text.type == "text"
    assert text.text == "水车 \n\n"
    assert done.stop_reason == "end_turn"
    assert (done.usage.input_tokens, done.usage.output_tokens) == (2, 5)


async def test_anthropic_streams_tool_calls_and_takes_results(anthropic_client: anthropic.AsyncAnthropic) -> None:
    messages = user("weather")
    for text in ("Let me see.", "It snows."):
        async with anthropic_client.messages.stream(
            model="sim-1", max_tokens=2048, messages=messages, tools=ANTHROPIC_TOOLS, thinking=THINKING
        ) as stream:
            done = await stream.get_final_message()
        assert [block.text for block in done.content if block.type == "text"] == [text]
        calls = [block for block in done.content if block.type == "tool_use"]
        messages.append({"role": "assistant", "content": done.content})
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "snow"} for call in calls]
        messages.append({"role": "user", "content": results})
        if calls:
            assert done.stop_reason == "tool_use"
            assert [(call.id, call.name, call.input) for call in calls] == [
                ("toolu_1", "weather", {"city": "Paris"}),
                ("toolu_2", "time", {"city": "Oslo"}),
            ]


async def test_anthropic_answers_whole(anthropic_client: anthropic.AsyncAnthropic) -> None:
    done = await anthropic_client.messages.create(
        model="sim-1", max_tokens=64, messages=user("weather"), tools=ANTHROPIC_TOOLS
    )
    assert [block.type for block in done.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert done.stop_reason == "tool_use"
    assert done.usage.output_tokens > 0


@pytest.mark.parametrize(
    ("text", "error"), [("busy", openai.RateLimitError), ("key", openai.AuthenticationError), ("x", None)]
)
async def test_openai_errors_are_its_own(
    openai_client: openai.AsyncOpenAI, text: str, error: type[openai.APIStatusError] | None
) -> None:
    messages: Any = user(text) if error else [{"role": "tool", "tool_call_id": "c", "content": ""}]
    with pytest.raises(error or openai.BadRequestError) as caught:
        await openai_client.chat.completions.create(model="sim-1", messages=messages)
    assert isinstance(caught.value.body, dict)
    assert caught.value.body["message"]


@pytest.mark.parametrize(
    ("text", "status", "kind"),
    [("busy", 429, "rate_limit_error"), ("key", 401, "authentication_error"), ("overloaded", 529, "overloaded_error")],
)
async def test_anthropic_errors_are_its_own(
    anthropic_client: anthropic.AsyncAnthropic, text: str, status: int, kind: str
) -> None:
    with pytest.raises(anthropic.APIStatusError) as caught:
        await anthropic_client.messages.create(model="sim-1", max_tokens=64, messages=user(text))
    assert caught.value.status_code == status
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", kind)


async def test_an_error_event_after_200_is_raised_by_both(
    sim: Simulator, openai_client: openai.AsyncOpenAI, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    error = {"type": "overloaded_error", "message": "Overloaded"}
    sim.rules = parse_script([{"steps": [{"content": "a"}, {"frame": {"type": "error", "error": error}}]}])
    with pytest.raises(openai.APIError, match="Overloaded"):
        async with openai_client.chat.completions.stream(model="sim-1", messages=user("x")) as stream:
            await stream.get_final_completion()
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        async with anthropic_client.messages.stream(model="sim-1", max_tokens=64, messages=user("x")) as streamed:
            await streamed.get_final_message()
