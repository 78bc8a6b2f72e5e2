"""LlamaIndex: its model for OpenAI-like servers, `as_structured_llm`, and its function agent."""

from __future__ import annotations

from typing import Any

from exercises import COUNT, URL, WHERE, Locator, Pieces, Place, report
from llama_index.core.agent.workflow import AgentStream, FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

CALL = [ChatMessage("Call Place.")]


def chat(model: str) -> OpenAILike:
    return OpenAILike(
        model=model, api_base=URL, api_key="none", max_retries=0, is_chat_model=True, is_function_calling_model=True
    )


async def text(model: str) -> Any:
    return (await chat(model).achat([ChatMessage(COUNT)])).message.content


async def streamed_text(model: str) -> Any:
    stream = await chat(model).astream_chat([ChatMessage(COUNT)])
    return Pieces([chunk.delta or "" async for chunk in stream]).tell()


async def function(model: str) -> Any:
    locator = Locator()
    agent = FunctionAgent(llm=chat(model), tools=[FunctionTool.from_defaults(locator.locate)], streaming=False)
    return [str(await agent.run(WHERE)), locator.calls]


async def streamed_function(model: str) -> Any:
    locator, pieces = Locator(), Pieces()
    run = FunctionAgent(llm=chat(model), tools=[FunctionTool.from_defaults(locator.locate)]).run(WHERE)
    async for event in run.stream_events():
        if isinstance(event, AgentStream):
            pieces.append(event.delta)
    answer = str(await run)
    assert answer == "".join(pieces)
    return [answer, locator.calls]


async def typed_by_a_call(model: str) -> Any:
    return (await chat(model).as_structured_llm(Place).achat(CALL)).raw


async def streamed_typed_by_a_call(model: str) -> Any:
    stream = await chat(model).as_structured_llm(Place).astream_chat(CALL)
    return Place.model_validate([chunk.raw async for chunk in stream][-1].model_dump())


if __name__ == "__main__":
    report("llama-index-llms-openai-like", globals())
