"""OpenAI's Agents SDK, over the responses API, its default."""

from __future__ import annotations

import json
from typing import Any

import openai
from agents import Agent, Runner, function_tool, set_default_openai_client, set_tracing_disabled
from exercises import COUNT, URL, WHERE, WHICH, Locator, Pieces, Place, report

set_tracing_disabled(True)
set_default_openai_client(openai.AsyncOpenAI(base_url=URL, api_key="none", max_retries=0), use_for_tracing=False)


async def text(model: str) -> Any:
    return (await Runner.run(Agent(name="Counter", model=model), COUNT)).final_output


async def streamed_text(model: str) -> Any:
    run, pieces = Runner.run_streamed(Agent(name="Counter", model=model), COUNT), Pieces()
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            pieces.append(event.data.delta)
    return pieces.tell()


async def function(model: str) -> Any:
    locator = Locator()
    agent = Agent(name="Guide", model=model, tools=[function_tool(locator.locate)])
    return [(await Runner.run(agent, WHERE)).final_output, locator.calls]


async def streamed_function(model: str) -> Any:
    locator = Locator()
    run = Runner.run_streamed(Agent(name="Guide", model=model, tools=[function_tool(locator.locate)]), WHERE)
    async for _ in run.stream_events():
        pass
    return [run.final_output, locator.calls]


async def typed(model: str) -> Any:
    return (await Runner.run(Agent(name="Guide", model=model, output_type=Place), WHICH)).final_output


async def streamed_typed(model: str) -> Any:
    run, pieces = Runner.run_streamed(Agent(name="Guide", model=model, output_type=Place), WHICH), Pieces()
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            pieces.append(event.data.delta)
    assert json.loads("".join(pieces)) == run.final_output.model_dump()
    return run.final_output


if __name__ == "__main__":
    report("openai-agents", globals())
