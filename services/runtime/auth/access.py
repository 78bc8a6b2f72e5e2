"""What a user may do in a chat: the owner everything, others of the tenant what they are named for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypeAlias

from services.runtime.auth.answerers import list_names

if TYPE_CHECKING:
    from collections.abc import Collection

    from services.runtime.auth.identity import Identity

Access: TypeAlias = Literal["", "read", "take_part", "own"]
"""Empty: nothing, and the chat is reported as missing."""

PARTICIPATING = frozenset({"own", "take_part"})

RUN_ONLY = "run"
"""What is left to a user whose chat it is not any more, while a run of theirs goes on: that run's name."""


def find_access(user: Identity, owner: Identity, shared_with: Collection[str], participants: Collection[str]) -> Access:
    if user == owner:
        return "own"
    if user.tenant != owner.tenant:
        return ""
    names = set(list_names(user))
    if not names.isdisjoint(participants):
        return "take_part"
    return "" if names.isdisjoint(shared_with) else "read"
