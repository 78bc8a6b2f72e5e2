"""OpenAI's official client before the whole suite: agents as models, over real processes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from openai import AsyncOpenAI

from tests.e2e.suite import Suite

pytestmark = pytest.mark.asyncio(loop_scope="session")

ASK: Any = [{"role": "user", "content": "What is the weather in Paris today?"}]


@asynccontextmanager
async def client(suite: Suite) -> AsyncGenerator[AsyncOpenAI]:
    async with asyncio.timeout(300), AsyncOpenAI(base_url=f"{suite.url}/v1", api_key="none", max_retries=0) as api:
        yield api


async def test_an_agent_answers_as_a_model_and_keeps_its_tools_inside(suite: Suite) -> None:
    async with client(suite) as api:
        assert "react" in [model.id async for model in api.models.list()]
        whole = await api.chat.completions.create(model="react", messages=ASK)
        stream = await api.chat.completions.create(model="react", messages=ASK, stream=True)
        chunks = [chunk async for chunk in stream]
    said = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert whole.choices[0].message.content == said != ""
    assert (whole.choices[0].finish_reason, whole.choices[0].message.tool_calls) == ("stop", None)
    assert whole.usage is not None
    assert whole.usage.total_tokens > 0
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_a_response_is_streamed_read_again_from_the_middle_and_gone_on_with(suite: Suite) -> None:
    async with client(suite) as api:
        async with api.responses.stream(model="react", input=ASK) as stream:
            events = [event async for event in stream]
            answer = await stream.get_final_response()
        middle = events[len(events) // 2].sequence_number
        rest = [event async for event in await api.responses.retrieve(answer.id, stream=True, starting_after=middle)]
        again = await api.responses.retrieve(answer.id)
        thanks = await api.responses.create(model="react", input="Thanks", previous_response_id=answer.id)
    assert rest[-1].type == "response.completed"
    assert rest[-1].response.output_text == again.output_text == answer.output_text != ""
    assert thanks.conversation == again.conversation
    assert [message["role"] for message in suite.requests()[-1]["messages"]].count("user") == 2


async def test_a_background_run_is_found_by_its_id_and_cancelled(suite: Suite) -> None:
    suite.play({"steps": [{"content": "first"}, {"stall": True}]})
    async with client(suite) as api:
        begun = await api.responses.create(model="plain", input="go", background=True)
        assert (await api.responses.retrieve(begun.id)).status == "in_progress"
        stream = await api.responses.retrieve(begun.id, stream=True)
        async for event in stream:
            if event.type == "response.output_text.delta":
                break
        await stream.close()
        stopped = await api.responses.cancel(begun.id)
    assert (stopped.status, stopped.output_text) == ("cancelled", "first")


async def test_leaving_a_completion_cancels_its_run(suite: Suite) -> None:
    suite.play({"steps": [{"content": "first"}, {"stall": True}]})
    async with client(suite) as api:
        stream = await api.chat.completions.create(model="plain", messages=ASK, stream=True)
        first = await anext(stream)
        await stream.close()
        run_id = first.id.removeprefix("chatcmpl-")
        async with asyncio.timeout(100):
            while (await suite.get("/api/run", runId=run_id))[1]["data"]["state"] != "cancelled":
                await asyncio.sleep(0.1)


LOCATE: Any = {
    "type": "function",
    "function": {"name": "locate", "description": "Where the user is", "parameters": {"type": "object"}},
}
LOCATED = [
    {"match": {"turn": 1}, "steps": [{"toolCall": "locate", "id": "call_l", "arguments": ['{"exact":', "true}"]}]},
    {"steps": [{"content": "You are in Lyon."}]},
]


async def test_a_function_of_the_caller_is_called_and_its_answer_goes_on_with_the_run(suite: Suite) -> None:
    suite.play(*LOCATED)
    asked: Any = [{"role": "user", "content": "Where am I?"}]
    async with client(suite) as api:
        first = await api.chat.completions.create(model="react", messages=asked, tools=[LOCATE])
        (call,) = first.choices[0].message.tool_calls or []
        assert first.choices[0].finish_reason == "tool_calls"
        assert call.type == "function"
        assert (call.function.name, call.function.arguments) == ("locate", '{"exact":true}')
        asked += [
            first.choices[0].message.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.id, "content": '{"city": "Lyon"}'},
        ]
        second = await api.chat.completions.create(model="react", messages=asked, tools=[LOCATE])
    assert second.choices[0].message.content == "You are in Lyon."
    answered = suite.requests()[-1]["messages"]
    assert [message["content"] for message in answered if message["role"] == "tool"] == ['{"city": "Lyon"}']


async def test_a_function_call_of_a_response_is_answered_by_its_id(suite: Suite) -> None:
    suite.play(*LOCATED)
    tool: Any = {"type": "function", "name": "locate", "parameters": {"type": "object"}, "strict": False}
    async with client(suite) as api:
        first = await api.responses.create(model="react", input="Where am I?", tools=[tool])
        (called,) = [item for item in first.output if item.type == "function_call"]
        output: Any = {"type": "function_call_output", "call_id": called.call_id, "output": '{"city": "Lyon"}'}
        second = await api.responses.create(model="react", input=[output], previous_response_id=first.id, tools=[tool])
    assert second.output_text == "You are in Lyon."
