"""Log lines as written by an orchestrator."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from headrace.v1 import agent_pb2, llm_pb2, memory_pb2

if TYPE_CHECKING:
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

TIMEOUT_S = 60.0

PROSE = "The quick brown fox jumps over the lazy dog, and nobody asks why; it is 12,345 times that it has. "


def new_id() -> str:
    return str(uuid.uuid4())


async def append(stub: MemoryServiceAsyncStub, chat_id: str, run_id: str, *lines: memory_pb2.LogLine) -> None:
    request = memory_pb2.AppendRequest(chat_id=chat_id, run_id=run_id, request_id=new_id(), lines=lines)
    await stub.Append(request, timeout=TIMEOUT_S)


def query(message: str) -> memory_pb2.LogLine:
    asked = agent_pb2.QueryRequest(request_id=new_id(), agent_key="writer", role="user", message=message)
    return memory_pb2.LogLine(query=memory_pb2.QueryLine(query=asked, agent_hash="abc"))


def end() -> memory_pb2.LogLine:
    events = memory_pb2.EventRange(first_seq=99, last_seq=99)
    return memory_pb2.LogLine(run=memory_pb2.RunLine(state="completed", finish_reason="stop", events=events))


def step(*messages: memory_pb2.LogMessage) -> memory_pb2.LogLine:
    return memory_pb2.LogLine(step=memory_pb2.StepLine(stage="react", seq=1, messages=messages))


def answer(text: str, msg_id: str) -> memory_pb2.LogMessage:
    return _piece(llm_pb2.Message(role="assistant", content=[llm_pb2.ContentPart(text=text)]), msg_id)


def call(call_id: str, name: str, arguments: str, msg_id: str) -> memory_pb2.LogMessage:
    asked = llm_pb2.ToolCall(id=call_id, name=name, arguments=arguments)
    return _piece(llm_pb2.Message(role="assistant", tool_calls=[asked]), msg_id, call_id)


def result(call_id: str, name: str, text: str) -> memory_pb2.LogMessage:
    part = llm_pb2.ContentPart(text=text)
    message = llm_pb2.Message(role="tool", name=name, tool_call_id=call_id, content=[part])
    return memory_pb2.LogMessage(message=message, ts=1_700_000_000_000, tool_id=call_id, ok=True)


def _piece(message: llm_pb2.Message, msg_id: str, tool_id: str | None = None) -> memory_pb2.LogMessage:
    events = memory_pb2.EventRange(first_seq=4, last_seq=40)
    return memory_pb2.LogMessage(message=message, ts=1_700_000_000_000, msg_id=msg_id, tool_id=tool_id, events=events)
