"""OpenAI's own client for Python."""

from __future__ import annotations

import json
from typing import Any

import openai
from exercises import COUNT, URL, WHERE, WHICH, Locator, Pieces, Place, report

api = openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0)
TOOLS: Any = [
    {
        "type": "function",
        "function": {
            "name": "locate",
            "description": "Where the user is",
            "parameters": {"type": "object", "properties": {"exact": {"type": "boolean"}}, "required": ["exact"]},
        },
    }
]


def say(text: str) -> Any:
    return [{"role": "user", "content": text}]


async def text(model: str) -> Any:
    answer = await api.chat.completions.create(model=model, messages=say(COUNT))
    return answer.choices[0].message.content


async def streamed_text(model: str) -> Any:
    stream = await api.chat.completions.create(model=model, messages=say(COUNT), stream=True)
    return Pieces([chunk.choices[0].delta.content or "" async for chunk in stream]).tell()


async def function(model: str) -> Any:
    locator, messages = Locator(), say(WHERE)
    first = await api.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    message = first.choices[0].message
    messages.append(message)
    for call in message.tool_calls or ():
        result = locator.locate(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    second = await api.chat.completions.create(model=model, messages=messages, tools=TOOLS)
    return [second.choices[0].message.content, locator.calls]


async def streamed_function(model: str) -> Any:
    locator, messages = Locator(), say(WHERE)
    async with api.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as stream:
        message = (await stream.get_final_completion()).choices[0].message
    messages.append(message)
    for call in message.tool_calls or ():
        result = locator.locate(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    async with api.chat.completions.stream(model=model, messages=messages, tools=TOOLS) as stream:
        return [(await stream.get_final_completion()).choices[0].message.content, locator.calls]


async def typed(model: str) -> Any:
    whole = await api.chat.completions.parse(model=model, messages=say(WHICH), response_format=Place)
    response = await api.responses.parse(model=model, input=WHICH, text_format=Place)
    assert response.output_parsed == whole.choices[0].message.parsed
    return response.output_parsed


async def streamed_typed(model: str) -> Any:
    async with api.chat.completions.stream(model=model, messages=say(WHICH), response_format=Place) as stream:
        completion = await stream.get_final_completion()
    async with api.responses.stream(model=model, input=WHICH, text_format=Place) as stream:
        response = await stream.get_final_response()
    assert response.output_parsed == completion.choices[0].message.parsed
    return response.output_parsed


if __name__ == "__main__":
    report("openai", globals())
