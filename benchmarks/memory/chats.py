"""Writes chats of a given length, in the form of an agent with tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.memory.lines import PROSE, answer, append, call, end, new_id, query, result, step

if TYPE_CHECKING:
    from headrace.v1 import memory_pb2
    from headrace.v1.memory_pb2_grpc import MemoryServiceAsyncStub

MESSAGES_PER_TURN = 3
"""A call, its result, and a text about it."""

LINES_PER_APPEND = 300


async def chat_of(stub: MemoryServiceAsyncStub, messages: int, run_messages: int) -> tuple[str, str]:
    """Write a chat of `messages` messages in runs of `run_messages`, the last one open; return the ids of chat
    and last run.
    """
    chat_id, run_id = new_id(), ""
    while messages > 0:
        if run_id:
            await append(stub, chat_id, run_id, end())
        run_id = new_id()
        await append(stub, chat_id, run_id, query(f"Go on, part {messages}: {PROSE}"))
        count = min(messages, run_messages)
        lines = [_turn(f"{messages}-{index}") for index in range(max(1, (count - 1) // MESSAGES_PER_TURN))]
        for first in range(0, len(lines), LINES_PER_APPEND):
            await append(stub, chat_id, run_id, *lines[first : first + LINES_PER_APPEND])
        messages -= count
    return chat_id, run_id


def _turn(name: str) -> memory_pb2.LogLine:
    return step(
        call(f"call_{name}", "read_file", f'{{"path": "docs/{name}.md"}}', f"m_{name}"),
        result(f"call_{name}", "read_file", f"# {name}\n" + PROSE * 6),
        answer(f"{name} says: {PROSE * 2}", f"m_{name}_b"),
    )
