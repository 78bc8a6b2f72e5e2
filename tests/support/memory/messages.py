"""Messages of steps, short enough to read in a test."""

from typing import Any

from headrace.v1 import llm_pb2, memory_pb2


def user(text: str, *parts: llm_pb2.ContentPart) -> memory_pb2.LogMessage:
    return _message(llm_pb2.Message(role="user", content=[llm_pb2.ContentPart(text=text), *parts]))


def image(**fields: Any) -> llm_pb2.ContentPart:
    return llm_pb2.ContentPart(image=llm_pb2.ImagePart(**fields))


PICTURE = image(data=b"\x89PNG", mime_type="image/png")


def content(text: str, **fields: Any) -> memory_pb2.LogMessage:
    return _message(llm_pb2.Message(role="assistant", content=[llm_pb2.ContentPart(text=text)]), **fields)


def reasoning(text: str, **fields: Any) -> memory_pb2.LogMessage:
    return _message(llm_pb2.Message(role="assistant", reasoning_content=text), **fields)


def call(call_id: str, arguments: str = "{}", name: str = "weather", **fields: Any) -> memory_pb2.LogMessage:
    tool_call = llm_pb2.ToolCall(id=call_id, name=name, arguments=arguments)
    return _message(llm_pb2.Message(role="assistant", tool_calls=[tool_call]), **{"tool_id": call_id} | fields)


def result(call_id: str, text: str = "ok", name: str = "weather", **fields: Any) -> memory_pb2.LogMessage:
    message = llm_pb2.Message(role="tool", name=name, tool_call_id=call_id, content=[llm_pb2.ContentPart(text=text)])
    return _message(message, **{"tool_id": call_id, "ok": True} | fields)


def _message(message: llm_pb2.Message, **fields: Any) -> memory_pb2.LogMessage:
    if message.role == "assistant":
        fields = {"msg_id": "m_00000001"} | fields
    return memory_pb2.LogMessage(message=message, ts=1_700_000_000_000, **fields)
