"""Executing a tool that may call a model, and the deltas it streams."""

import json
from typing import Any

from headrace.streams import reading
from headrace.v1 import tools_pb2
from tests.support.tools.suite import CHAT, RUN, Suite

MODEL = tools_pb2.ToolModel(provider_key="p", model="m")
BUDGET = tools_pb2.ToolBudget(model_calls=10)


def request(
    tool: str,
    arguments: dict[str, Any],
    *,
    chat_id: str = CHAT,
    budget: tools_pb2.ToolBudget | None = BUDGET,
    model: tools_pb2.ToolModel | None = MODEL,
    **fields: Any,
) -> tools_pb2.ExecuteRequest:
    return tools_pb2.ExecuteRequest(
        run_id=RUN,
        tool_call_id="call_1",
        tool_name=tool,
        arguments=json.dumps(arguments),
        chat_id=chat_id,
        model=model,
        budget=budget,
        **fields,
    )


async def read_deltas(suite: Suite, call: tools_pb2.ExecuteRequest) -> list[Any]:
    """Execute a call and return its deltas, asserting that the result is last and that only artifacts come between
    the last usage, if any, and the result."""
    async with reading(suite.stub.Execute(call)) as deltas:
        received = [delta async for delta in deltas]
    kinds = [delta.WhichOneof("delta") for delta in received]
    assert kinds.count("result") == 1
    assert kinds[-1] == "result"
    after = kinds[::-1].index("usage") if "usage" in kinds else 1
    assert set(kinds[-after:-1]) <= {"artifact"}
    return received


def list_texts(deltas: list[Any], stream: str = "text") -> list[str]:
    return [delta.output.delta for delta in deltas if delta.output.stream == stream]


def list_sources(deltas: list[Any]) -> list[str]:
    return [delta.source.url for delta in deltas if delta.HasField("source")]


def find_usage(deltas: list[Any]) -> Any:
    return next(delta.usage for delta in reversed(deltas) if delta.HasField("usage"))
