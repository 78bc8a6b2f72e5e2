"""litellm as a library: chat completions and responses."""

from __future__ import annotations

import json
import os
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # Otherwise litellm fetches it on import.

import litellm
from exercises import COUNT, URL, WHERE, WHICH, Locator, Pieces, Place, report

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "locate",
            "description": "Where the user is",
            "parameters": {"type": "object", "properties": {"exact": {"type": "boolean"}}, "required": ["exact"]},
        },
    }
]


async def ask(model: str, messages: list[Any], **options: Any) -> Any:
    place = {"model": f"openai/{model}", "api_base": URL, "api_key": "none", "num_retries": 0}
    return await litellm.acompletion(messages=messages, **place, **options)


async def fold(model: str, messages: list[Any], **options: Any) -> Any:
    chunks = [chunk async for chunk in await ask(model, messages, stream=True, **options)]
    return litellm.stream_chunk_builder(chunks, messages)


def say(text: str) -> list[Any]:
    return [{"role": "user", "content": text}]


async def text(model: str) -> Any:
    return (await ask(model, say(COUNT))).choices[0].message.content


async def streamed_text(model: str) -> Any:
    stream = await ask(model, say(COUNT), stream=True)
    return Pieces([chunk.choices[0].delta.content or "" async for chunk in stream]).tell()


async def function(model: str) -> Any:
    return await call_function(model, ask)


async def streamed_function(model: str) -> Any:
    return await call_function(model, fold)


async def call_function(model: str, send: Any) -> Any:
    locator, messages = Locator(), say(WHERE)
    messages.append(message := (await send(model, messages, tools=TOOLS)).choices[0].message)
    for call in message.tool_calls:
        result = locator.locate(**json.loads(call.function.arguments))
        messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return [(await send(model, messages, tools=TOOLS)).choices[0].message.content, locator.calls]


async def typed(model: str) -> Any:
    whole = await ask(model, say(WHICH), response_format=Place)
    return Place.model_validate_json(whole.choices[0].message.content)


async def streamed_typed(model: str) -> Any:
    whole = await fold(model, say(WHICH), response_format=Place)
    return Place.model_validate_json(whole.choices[0].message.content)


if __name__ == "__main__":
    report("litellm", globals())
