"""Pinned messages and edited summaries."""

from headrace.v1 import memory_pb2
from tests.support.memory.writing import Memory

PINNED = "Pinned by the user, word for word:"


async def pin(memory: Memory, chat_id: str, n: int, **fields: str | bool) -> int:
    return (await memory.call("PinMessage", chat_id=chat_id, n=n, **fields)).n


async def summary(memory: Memory, chat_id: str) -> memory_pb2.GetSummaryResponse:
    return await memory.call("GetSummary", chat_id=chat_id)


async def edit(memory: Memory, chat_id: str, n: int, text: str) -> int:
    return (await memory.call("EditSummary", chat_id=chat_id, n=n, text=text)).n
