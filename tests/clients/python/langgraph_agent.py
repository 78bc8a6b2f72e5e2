"""LangGraph: an agent made by `create_agent` around one of ours, and its typed answer."""

from __future__ import annotations

from typing import Any

from exercises import COUNT, URL, WHERE, WHICH, Locator, Pieces, Place, report
from langchain.agents import create_agent
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain_openai import ChatOpenAI


def chat(model: str) -> ChatOpenAI:
    return ChatOpenAI(model=model, base_url=URL, api_key="none", max_retries=0)


def say(text: str) -> Any:
    return {"messages": [{"role": "user", "content": text}]}


async def text(model: str) -> Any:
    return (await create_agent(chat(model), []).ainvoke(say(COUNT)))["messages"][-1].content


async def streamed_text(model: str) -> Any:
    stream = create_agent(chat(model), []).astream(say(COUNT), stream_mode="messages")
    return Pieces([str(chunk.content) async for chunk, _ in stream]).tell()


async def function(model: str) -> Any:
    locator = Locator()
    state = await create_agent(chat(model), [locator.locate]).ainvoke(say(WHERE))
    return [state["messages"][-1].content, locator.calls]


async def streamed_function(model: str) -> Any:
    locator, pieces = Locator(), Pieces()
    stream = create_agent(chat(model), [locator.locate]).astream(say(WHERE), stream_mode="messages")
    async for chunk, metadata in stream:
        if metadata["langgraph_node"] == "model":
            pieces.append(str(chunk.content))
    return ["".join(pieces), locator.calls]


async def typed(model: str) -> Any:
    agent = create_agent(chat(model), [], response_format=ProviderStrategy(Place))
    return (await agent.ainvoke(say(WHICH)))["structured_response"]


async def streamed_typed(model: str) -> Any:
    agent = create_agent(chat(model), [], response_format=ProviderStrategy(Place))
    return [state async for state in agent.astream(say(WHICH), stream_mode="values")][-1]["structured_response"]


async def typed_by_a_call(model: str) -> Any:
    agent = create_agent(chat(model), [], response_format=ToolStrategy(Place))
    return (await agent.ainvoke(say("Call Place.")))["structured_response"]


if __name__ == "__main__":
    report("langgraph", globals())
