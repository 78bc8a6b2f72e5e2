"""Messages of a conversation with calls of one tool, and the request body that a provider receives."""

from typing import Any

from headrace.v1 import llm_pb2
from tests.support.llm_gateway.gateway import Gateway, text_message

SHORT: dict[str, Any] = {"timeouts": {"connectMs": 300, "firstDeltaMs": 300, "idleMs": 200}}

SCHEMA = '{"type":"object","properties":{"big":{"const":12345678901234567890123}}}'
TOOL = llm_pb2.ToolSchema(name="f", description="does it", parameters=SCHEMA)
SYSTEM, USER = text_message("system", "be brief"), text_message("user", "hello")


def choose_timeouts(reason: str) -> dict[str, Any]:
    """Return short timeouts if the call must end by one; otherwise the defaults, which also hold on a busy machine."""
    return SHORT if reason == "STREAM_STALLED" else {}


def call(call_id: str, arguments: str = "{}") -> llm_pb2.ToolCall:
    return llm_pb2.ToolCall(id=call_id, name="f", arguments=arguments)


def asks(*calls: llm_pb2.ToolCall, text: str = "", **fields: Any) -> llm_pb2.Message:
    return text_message("assistant", text, tool_calls=calls, **fields)


def answers(call_id: str, text: str = "done") -> llm_pb2.Message:
    return text_message("tool", text, tool_call_id=call_id, name="f")


async def read_body(gateway: Gateway, *messages: llm_pb2.Message, **fields: Any) -> Any:
    """Send a request that must succeed, and return the body that the provider received."""
    result = await gateway.chat(*messages, **fields)
    assert result.error is None
    return gateway.sim.requests[-1].body
