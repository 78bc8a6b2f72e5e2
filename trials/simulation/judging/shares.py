"""Shared chats: only the owner and the users with whom a chat is shared can read it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from headrace.v1 import memory_pb2
from services.runtime.auth.identity import DEFAULT_SCOPES, Identity, acting_as
from trials.simulation.outside.outside import ASKED_TOO

if TYPE_CHECKING:
    from trials.simulation.people.users import User
    from trials.simulation.world.world import World

CALL_S = 20.0


async def judge_shares(world: World, judge: User, people: Iterable[User]) -> list[str]:
    """Read each chat as the user with whom some chats are shared."""
    if not world.has_users:
        return []
    problems: list[str] = []
    people = [*people]
    shared = {chat_id for user in people for chat_id in user.shared}
    chats = dict.fromkeys(asked.chat_id for user in people for asked in user.asked if asked.run_id)
    for chat_id in chats:
        request = memory_pb2.GetChatRequest(chat_id=chat_id)
        with acting_as(Identity("default", ASKED_TOO, scopes=DEFAULT_SCOPES)):
            read = await judge.try_until_answered(lambda request=request: judge.memory.GetChat(request, timeout=CALL_S))
        if (read is not None) != (chat_id in shared):
            outcome = "was read" if read is not None else f"was refused ({judge.refusal})"
            problems.append(f"chat {chat_id} is {'' if chat_id in shared else 'not '}shared, and {outcome}")
    return problems
