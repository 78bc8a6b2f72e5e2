"""Steps of a scripted model or tool."""

import asyncio
from typing import TypeAlias

from headrace.errors import HeadraceError
from headrace.v1 import llm_pb2, tools_pb2
from tests.support.summaries import write_summary

Step: TypeAlias = llm_pb2.LlmDelta | HeadraceError | float | asyncio.Barrier | str
"""A delta to send, an error to raise, seconds to wait, a meeting with other calls, or BREAK."""


ToolStep: TypeAlias = tools_pb2.ToolDelta | HeadraceError | float | str

BREAK = "break"
"""The service goes away at this step."""


def content(*texts: str) -> list[Step]:
    return [llm_pb2.LlmDelta(content=text) for text in texts]


def reasoning(*texts: str) -> list[Step]:
    return [llm_pb2.LlmDelta(reasoning=text) for text in texts]


def call(name: str, arguments: str = "{}", *, index: int = 0, call_id: str = "call_1") -> list[Step]:
    half = len(arguments) // 2
    first = llm_pb2.ToolCallDelta(index=index, id=call_id, name=name, arguments=arguments[:half])
    second = llm_pb2.ToolCallDelta(index=index, arguments=arguments[half:])
    return [llm_pb2.LlmDelta(tool_call=first), llm_pb2.LlmDelta(tool_call=second)]


def finish(reason: str = "stop") -> list[Step]:
    usage = llm_pb2.LlmDelta(usage={"input_tokens": 10, "output_tokens": 5, "model_calls": 1})  # pyright: ignore[reportArgumentType] - a dict is a message to protobuf
    return [usage, llm_pb2.LlmDelta(finish=llm_pb2.LlmFinish(reason=reason))]


def summary(text: str = "They spoke of the weather.") -> list[Step]:
    """Return a model's answer to the request for a summary."""
    return [*content(write_summary(text)), *finish()]


def answer(*texts: str) -> list[Step]:
    """Return a whole turn that answers with this text."""
    return content(*texts) + finish()


def call_tool(name: str, arguments: str = "{}", *, call_id: str = "call_1") -> list[Step]:
    """Return a whole turn that calls this tool."""
    return call(name, arguments, call_id=call_id) + finish("tool_calls")


ANSWER = answer("All ", "good.")
