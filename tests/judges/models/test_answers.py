"""The simulator's answers, read by the providers' own Python clients, which accept what the providers send.

Both validate each answer and each frame against their types here, which they do not by default.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from services.simulator.script import parse_script
from services.simulator.server import Simulator, simulator
from tests.judges.models.judging import PROGRAMS, make_environment
from tests.support.programs import run_to_end

SCRIPT: list[dict[str, Any]] = [
    {"match": {"text": "busy"}, "steps": [{"status": 429, "headers": {"Retry-After": "1"}}]},
    {"match": {"text": "overloaded"}, "steps": [{"status": 529}]},
    {"match": {"text": "key"}, "steps": [{"status": 401}]},
    {"match": {"text": "cut"}, "steps": [{"content": "half"}, {"cut": True}]},
    {"match": {"text": "long"}, "steps": [{"content": "half"}, {"finish": "length"}]},
    {"match": {"text": "bomb"}, "steps": [{"finish": "content_filter"}]},
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
RESPONSES_TOOLS: Any = [
    {"type": "function", "name": name, "parameters": CITY, "strict": False} for name in ("weather", "time")
]
ANTHROPIC_TOOLS: Any = [{"name": name, "input_schema": CITY} for name in ("weather", "time")]
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture
async def sim() -> AsyncGenerator[Simulator]:
    async with asyncio.timeout(200), simulator(SCRIPT) as sim:
        yield sim


@pytest.fixture
async def openai_client(sim: Simulator) -> AsyncGenerator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(
        base_url=sim.base_url, api_key="sk-none", max_retries=0, _strict_response_validation=True
    ) as client:
        yield client


@pytest.fixture
async def anthropic_client(sim: Simulator) -> AsyncGenerator[anthropic.AsyncAnthropic]:
    url = sim.base_url.removesuffix("/v1")
    async with anthropic.AsyncAnthropic(
        base_url=url, api_key="sk-none", max_retries=0, _strict_response_validation=True
    ) as client:
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
        completion = await stream.get_final_completion()
    assert completion.choices[0].finish_reason == "tool_calls"
    calls = completion.choices[0].message.tool_calls or []
    assert [(call.id, call.function.name, call.function.arguments) for call in calls] == [
        ("toolu_1", "weather", '{"city":"Paris"}'),
        ("toolu_2", "time", '{"city":"Oslo"}'),
    ]


async def test_openai_answers_unstreamed_and_accepts_results(openai_client: openai.AsyncOpenAI) -> None:
    messages = user("weather")
    first = await openai_client.chat.completions.create(model="sim-1", messages=messages, tools=OPENAI_TOOLS)
    messages.append(first.choices[0].message)
    for call in first.choices[0].message.tool_calls or []:
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "snow"})
    answer = await openai_client.chat.completions.create(model="sim-1", messages=messages, tools=OPENAI_TOOLS)
    assert answer.choices[0].message.content == "It snows."
    assert answer.usage is not None
    assert answer.usage.total_tokens > 0


async def test_responses_stream_text_reasoning_and_usage(openai_client: openai.AsyncOpenAI) -> None:
    async with openai_client.responses.stream(model="sim-1", input="hello", store=False) as stream:
        texts = [event.delta async for event in stream if event.type == "response.output_text.delta"]
        response = await stream.get_final_response()
    assert texts == ["水", "车 ", "\n\n"]
    assert [item.type for item in response.output] == ["reasoning", "message"]
    assert (response.status, response.output_text) == ("completed", "水车 \n\n")
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (2, 5)


@pytest.mark.parametrize("is_stream", [True, False])
async def test_responses_have_tool_calls_and_accept_results(openai_client: openai.AsyncOpenAI, is_stream: bool) -> None:
    fields: dict[str, Any] = {"model": "sim-1", "tools": RESPONSES_TOOLS, "store": False}
    items: list[Any] = user("weather")
    for text in ("Let me see.", "It snows."):
        if is_stream:
            async with openai_client.responses.stream(input=items, **fields) as stream:
                response: Any = await stream.get_final_response()
        else:
            response = await openai_client.responses.create(input=items, **fields)
        assert response.output_text == text
        calls = [item for item in response.output if item.type == "function_call"]
        items += [item.to_dict() for item in response.output]
        items += [{"type": "function_call_output", "call_id": call.call_id, "output": "snow"} for call in calls]
        if calls:
            assert [(call.call_id, call.name, json.loads(call.arguments)) for call in calls] == [
                ("toolu_1", "weather", {"city": "Paris"}),
                ("toolu_2", "time", {"city": "Oslo"}),
            ]


async def test_incomplete_responses_have_a_reason_and_refusals_match_openais(
    openai_client: openai.AsyncOpenAI,
) -> None:
    response = await openai_client.responses.create(model="sim-1", input="long", store=False)
    assert response.incomplete_details is not None
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    with pytest.raises(openai.RateLimitError):
        await openai_client.responses.create(model="sim-1", input="busy", store=False)
    thought: Any = {"type": "reasoning", "id": "rs_1", "summary": []}
    with pytest.raises(openai.BadRequestError, match="not persisted"):
        await openai_client.responses.create(model="sim-1", input=[thought, *user("x")], store=False)


async def test_anthropic_streams_text_thinking_and_usage(anthropic_client: anthropic.AsyncAnthropic) -> None:
    async with anthropic_client.messages.stream(
        model="sim-1", max_tokens=2048, messages=user("hello"), thinking=THINKING
    ) as stream:
        texts = [text async for text in stream.text_stream]
        message = await stream.get_final_message()
    assert texts == ["水", "车 ", "\n\n"]
    thinking, text = message.content
    assert thinking.type == "thinking"
    assert thinking.thinking == "Hmm"
    assert thinking.signature
    assert text.type == "text"
    assert text.text == "水车 \n\n"
    assert message.stop_reason == "end_turn"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (2, 5)


async def test_anthropic_streams_tool_calls_and_accepts_results(anthropic_client: anthropic.AsyncAnthropic) -> None:
    messages = user("weather")
    for text in ("Let me see.", "It snows."):
        async with anthropic_client.messages.stream(
            model="sim-1", max_tokens=2048, messages=messages, tools=ANTHROPIC_TOOLS, thinking=THINKING
        ) as stream:
            message = await stream.get_final_message()
        assert [block.text for block in message.content if block.type == "text"] == [text]
        calls = [block for block in message.content if block.type == "tool_use"]
        messages.append({"role": "assistant", "content": message.content})
        results = [{"type": "tool_result", "tool_use_id": call.id, "content": "snow"} for call in calls]
        messages.append({"role": "user", "content": results})
        if calls:
            assert message.stop_reason == "tool_use"
            assert [(call.id, call.name, call.input) for call in calls] == [
                ("toolu_1", "weather", {"city": "Paris"}),
                ("toolu_2", "time", {"city": "Oslo"}),
            ]


async def test_anthropic_answers_unstreamed(anthropic_client: anthropic.AsyncAnthropic) -> None:
    message = await anthropic_client.messages.create(
        model="sim-1", max_tokens=64, messages=user("weather"), tools=ANTHROPIC_TOOLS
    )
    assert [block.type for block in message.content] == ["thinking", "text", "tool_use", "tool_use"]
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens > 0


@pytest.mark.parametrize(
    ("text", "error"), [("busy", openai.RateLimitError), ("key", openai.AuthenticationError), ("x", None)]
)
async def test_the_openai_client_raises_the_matching_errors(
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
async def test_the_anthropic_client_raises_the_matching_errors(
    anthropic_client: anthropic.AsyncAnthropic, text: str, status: int, kind: str
) -> None:
    with pytest.raises(anthropic.APIStatusError) as caught:
        await anthropic_client.messages.create(model="sim-1", max_tokens=64, messages=user(text))
    assert caught.value.status_code == status
    body: Any = caught.value.body
    assert (body["type"], body["error"]["type"]) == ("error", kind)


async def test_an_error_event_after_200_is_raised_by_both_clients(
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


@pytest.mark.parametrize(
    ("text", "status", "error"),
    [
        ("400", 400, openai.BadRequestError),
        ("403", 403, openai.PermissionDeniedError),
        ("404", 404, openai.NotFoundError),
        ("500", 500, openai.InternalServerError),
        ("503", 503, openai.InternalServerError),
    ],
)
async def test_each_status_raises_the_openai_clients_error_class(
    sim: Simulator, openai_client: openai.AsyncOpenAI, text: str, status: int, error: type[openai.APIStatusError]
) -> None:
    sim.rules = parse_script([{"steps": [{"status": status}]}])
    with pytest.raises(error, match=f"scripted {text}"):
        await openai_client.chat.completions.create(model="sim-1", messages=user("x"))


@pytest.mark.parametrize("text", ["weather", "long", "bomb", "hello"])
async def test_openai_answers_are_the_same_unstreamed_and_streamed(
    openai_client: openai.AsyncOpenAI, text: str
) -> None:
    fields: dict[str, Any] = {"model": "sim-1", "messages": user(text), "tools": OPENAI_TOOLS}
    whole = await openai_client.chat.completions.create(**fields)
    usage: dict[str, Any] = {"stream_options": {"include_usage": True}}
    parts = [chunk async for chunk in await openai_client.chat.completions.create(**fields, **usage, stream=True)]
    deltas = [choice.delta for chunk in parts for choice in chunk.choices]
    message = whole.choices[0].message
    assert (message.content or "") == "".join(delta.content or "" for delta in deltas)
    names = [call.function.name for delta in deltas for call in delta.tool_calls or () if call.function]
    assert [call.function.name for call in message.tool_calls or () if call.type == "function"] == [
        *filter(None, names)
    ]
    assert [choice.finish_reason for chunk in parts for choice in chunk.choices if choice.finish_reason] == [
        whole.choices[0].finish_reason
    ]
    assert parts[-1].usage is not None
    assert whole.usage is not None
    assert parts[-1].usage.completion_tokens == whole.usage.completion_tokens


@pytest.mark.parametrize("text", ["weather", "long", "bomb", "hello"])
async def test_anthropic_answers_are_the_same_unstreamed_and_streamed(
    anthropic_client: anthropic.AsyncAnthropic, text: str
) -> None:
    fields: dict[str, Any] = {"model": "sim-1", "max_tokens": 2048, "messages": user(text), "tools": ANTHROPIC_TOOLS}
    whole = await anthropic_client.messages.create(**fields)
    async with anthropic_client.messages.stream(**fields) as stream:
        streamed = await stream.get_final_message()
    assert [block.to_dict() for block in streamed.content] == [block.to_dict() for block in whole.content]
    assert (streamed.stop_reason, streamed.usage.output_tokens) == (whole.stop_reason, whole.usage.output_tokens)


async def test_openai_content_is_null_for_a_call_without_text(
    openai_client: openai.AsyncOpenAI, sim: Simulator
) -> None:
    sim.rules = parse_script([{"steps": [{"toolCall": "time", "id": "call_1", "arguments": "{}"}]}])
    answer = await openai_client.chat.completions.create(model="sim-1", messages=user("x"), tools=OPENAI_TOOLS)
    assert answer.choices[0].message.content is None


async def test_a_cut_stream_fails_in_both_clients(
    openai_client: openai.AsyncOpenAI, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    with pytest.raises((openai.APIConnectionError, httpx2.RemoteProtocolError, httpx2.ReadError)):
        async with openai_client.chat.completions.stream(model="sim-1", messages=user("cut")) as stream:
            await stream.get_final_completion()
    with pytest.raises((anthropic.APIConnectionError, httpx2.RemoteProtocolError, httpx2.ReadError)):
        async with anthropic_client.messages.stream(model="sim-1", max_tokens=64, messages=user("cut")) as streamed:
            await streamed.get_final_message()


async def test_openai_lists_the_models_and_returns_embeddings(openai_client: openai.AsyncOpenAI) -> None:
    assert "sim-1" in [model.id async for model in openai_client.models.list()]
    # Other than floats are decoded by the client behind its own check of the form.
    answer = await openai_client.embeddings.create(
        model="sim-1", input=["one", "two"], dimensions=8, encoding_format="float"
    )
    assert [len(entry.embedding) for entry in answer.data] == [8, 8]
    assert answer.usage.total_tokens > 0


async def test_both_clients_refuse_malformed_frames(
    sim: Simulator, openai_client: openai.AsyncOpenAI, anthropic_client: anthropic.AsyncAnthropic
) -> None:
    choice = {"index": 0, "delta": {"content": 6}, "finish_reason": None}
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    sim.rules = parse_script([{"steps": [{"frame": frame}]}])
    with pytest.raises(openai.APIResponseValidationError):
        async with openai_client.chat.completions.stream(model="sim-1", messages=user("x")) as stream:
            await stream.get_final_completion()
    odd = {"type": "content_block_start", "index": "0", "content_block": {"type": "text", "text": 6}}
    sim.rules = parse_script([{"steps": [{"frame": odd}]}])
    with pytest.raises(anthropic.APIResponseValidationError):
        async with anthropic_client.messages.stream(model="sim-1", max_tokens=64, messages=user("x")) as streamed:
            await streamed.get_final_message()


@pytest.mark.parametrize(
    ("environment", "program"),
    [("google_genai", "ask_gemini.py"), ("boto3", "ask_bedrock.py")],
    ids=["gemini", "bedrock"],
)
async def test_the_vendors_client_streams_an_answer_and_completes_a_tool_loop(
    sim: Simulator, environment: str, program: str
) -> None:
    url = sim.base_url.removesuffix("/v1")
    code, output, complaints = await run_to_end(make_environment(environment), PROGRAMS / program, url)
    assert code == 0, complaints.decode()
    assert json.loads(output) == {
        "text": "水车 \n\n",
        "tokens": 5,
        "calls": [["weather", {"city": "Paris"}], ["time", {"city": "Oslo"}]],
        "answer": "It snows.",
        "error": 429,
    }
