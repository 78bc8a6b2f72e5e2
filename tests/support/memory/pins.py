"""Messages that are pinned, and what replaces them."""

from __future__ import annotations

from headrace.streams import rpc_errors
from headrace.v1 import memory_pb2
from tests.support.memory.writing import Memory

PINNED = "Pinned by the user, word for word:"


async def pin(memory: Memory, chat_id: str, n: int, **fields: str | bool) -> int:
    with rpc_errors():
        request = memory_pb2.PinMessageRequest(chat_id=chat_id, n=n, **fields)  # pyright: ignore[reportArgumentType] - fields of the request
        return (await memory.stub.PinMessage(request)).n


async def summary(memory: Memory, chat_id: str) -> memory_pb2.GetSummaryResponse:
    with rpc_errors():
        return await memory.stub.GetSummary(memory_pb2.GetSummaryRequest(chat_id=chat_id))


async def edit(memory: Memory, chat_id: str, n: int, text: str) -> int:
    with rpc_errors():
        return (await memory.stub.EditSummary(memory_pb2.EditSummaryRequest(chat_id=chat_id, n=n, text=text))).n
