"""LangChain: `with_structured_output` by all its methods."""

from __future__ import annotations

from typing import Any

from exercises import COUNT, URL, WHERE, WHICH, Locator, Pieces, Place, report
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI

METHODS = ("json_schema", "json_mode")


def chat(model: str) -> ChatOpenAI:
    return ChatOpenAI(model=model, base_url=URL, api_key="none", max_retries=0)


async def text(model: str) -> Any:
    return (await chat(model).ainvoke(COUNT)).content


async def streamed_text(model: str) -> Any:
    return Pieces([str(chunk.content) async for chunk in chat(model).astream(COUNT)]).tell()


async def function(model: str) -> Any:
    locator = Locator()
    bound, messages = chat(model).bind_tools([locator.locate]), [HumanMessage(WHERE)]
    messages.append(message := await bound.ainvoke(messages))
    messages += [ToolMessage(locator.locate(**call["args"]), tool_call_id=call["id"]) for call in message.tool_calls]
    return [(await bound.ainvoke(messages)).content, locator.calls]


async def streamed_function(model: str) -> Any:
    locator = Locator()
    bound, messages = chat(model).bind_tools([locator.locate]), [HumanMessage(WHERE)]
    messages.append(message := await fold(bound.astream(messages)))
    messages += [ToolMessage(locator.locate(**call["args"]), tool_call_id=call["id"]) for call in message.tool_calls]
    return [(await fold(bound.astream(messages))).content, locator.calls]


async def fold(chunks: Any) -> Any:
    whole = None
    async for chunk in chunks:
        whole = chunk if whole is None else whole + chunk
    return whole


async def typed(model: str) -> Any:
    results = [await chat(model).with_structured_output(Place, method=method).ainvoke(WHICH) for method in METHODS]
    assert results[0] == results[1]
    return results[0]


async def streamed_typed(model: str) -> Any:
    results = [await read_last(chat(model).with_structured_output(Place, method=method), WHICH) for method in METHODS]
    assert results[0] == results[1]
    return results[0]


async def typed_by_a_call(model: str) -> Any:
    return await chat(model).with_structured_output(Place, method="function_calling").ainvoke("Call Place.")


async def streamed_typed_by_a_call(model: str) -> Any:
    return await read_last(chat(model).with_structured_output(Place, method="function_calling"), "Call Place.")


async def read_last(chain: Any, ask: str) -> Any:
    return [part async for part in chain.astream(ask)][-1]


if __name__ == "__main__":
    report("langchain-openai", globals())
