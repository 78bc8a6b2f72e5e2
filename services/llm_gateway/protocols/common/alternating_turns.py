"""A conversation as alternating turns of user and assistant, each a list of blocks; results are the user's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from headrace.v1 import llm_pb2

Block = dict[str, Any]
Turn = dict[str, Any]


def join_turns(
    messages: Iterable[llm_pb2.Message], build_blocks: Callable[[llm_pb2.Message], list[Block]]
) -> list[Turn]:
    """Return the turns; instructions, which have a field of their own, and messages without blocks are left out."""
    turns: list[Turn] = []
    for message in messages:
        if message.role == "system" or not (blocks := build_blocks(message)):
            continue
        role = "assistant" if message.role == "assistant" else "user"
        if turns and turns[-1]["role"] == role:
            turns[-1]["content"] += blocks
        else:
            turns.append({"role": role, "content": blocks})
    return turns
