"""pydantic-ai: `output_type` in the provider's own form (NativeOutput) and as a tool call (its default)."""

from __future__ import annotations

from typing import Any

from exercises import COUNT, URL, WHERE, WHICH, Locator, Pieces, Place, report
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

CALL = "Call final_result."


def chat(model: str) -> OpenAIChatModel:
    return OpenAIChatModel(model, provider=OpenAIProvider(base_url=URL, api_key="none"))


async def text(model: str) -> Any:
    return (await Agent(chat(model)).run(COUNT)).output


async def streamed_text(model: str) -> Any:
    async with Agent(chat(model)).run_stream(COUNT) as run:
        return Pieces([piece async for piece in run.stream_text(delta=True, debounce_by=None)]).tell()


async def function(model: str) -> Any:
    locator = Locator()
    agent = Agent(chat(model), tools=[locator.locate])
    return [(await agent.run(WHERE)).output, locator.calls]


async def streamed_function(model: str) -> Any:
    locator = Locator()
    async with Agent(chat(model), tools=[locator.locate]).run_stream(WHERE) as run:
        return [await run.get_output(), locator.calls]


async def typed(model: str) -> Any:
    return (await Agent(chat(model), output_type=NativeOutput(Place)).run(WHICH)).output


async def streamed_typed(model: str) -> Any:
    async with Agent(chat(model), output_type=NativeOutput(Place)).run_stream(WHICH) as run:
        return await run.get_output()


async def typed_by_a_call(model: str) -> Any:
    return (await Agent(chat(model), output_type=Place).run(CALL)).output


async def streamed_typed_by_a_call(model: str) -> Any:
    async with Agent(chat(model), output_type=Place).run_stream(CALL) as run:
        return await run.get_output()


if __name__ == "__main__":
    report("pydantic-ai-slim", globals())
