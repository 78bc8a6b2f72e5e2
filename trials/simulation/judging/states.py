"""Chats' states, by their versions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trials.simulation.people.users import User


async def read_states(judge: User, people: Iterable[User]) -> None:
    """Read the state of each chat once more after all changes."""
    for chat_id in dict.fromkeys(move.chat_id for user in people for move in user.states):
        await judge.read_state(chat_id)


def judge_states(people: Iterable[User], *, reads_hold: bool) -> list[str]:
    """Check that each version of a chat's state was created once, from the previous one, and that no reader
    went back.

    With versions, this is full linearizability: an answer received before another request was sent has no later
    version. Unless `reads_hold`, only changes are checked.
    """
    problems: list[str] = []
    moves = [move for user in people for move in user.states if move.is_change or reads_hold]
    for move in moves:
        for other in moves:
            if move.chat_id != other.chat_id or move is other:
                continue
            if move.is_change and other.is_change and move.version == other.version:
                problems.append(f"version {move.version} of the state of chat {move.chat_id} was made twice")
            if move.answered_s < other.asked_s and move.version + other.is_change > other.version:
                problems.append(f"the state of chat {move.chat_id} went back from {move.version} to {other.version}")
    return problems
