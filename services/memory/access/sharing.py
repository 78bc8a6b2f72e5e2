"""Chats that their owners share with others of the tenant, to read or to take part."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest
from services.runtime.auth import identity
from services.runtime.auth.access import find_access

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from headrace.v1 import memory_pb2
    from services.runtime.auth.identity import Identity

_NAME = re.compile(r"tenant|user:[!-~]{1,128}|role:[!-+\--~]{1,64}")


def parse_shares(request: memory_pb2.ShareChatRequest) -> tuple[list[str], list[str]]:
    """Return who may read by a request, and who of them may take part: names in order, each once.

    Raises:
        InvalidRequest: A word is no name.
    """
    participants = _parse_names("participants", request.participants)
    return _parse_names("sharedWith", {*request.shared_with, *participants}), participants


def _parse_names(field: str, names: Iterable[str]) -> list[str]:
    found = sorted(set(names))
    if any(_NAME.fullmatch(name) is None for name in found):
        raise InvalidRequest.of(field, "must be names: tenant, user:NAME or role:NAME")
    return found


def describe_access(owner: Identity, shared_with: Collection[str], participants: Collection[str]) -> dict[str, Any]:
    """Return the fields that say whose a chat is and what the caller may do in it; with whom it is shared, its owner
    alone is told."""
    access = find_access(identity.require_identity(), owner, shared_with, participants)
    shown: dict[str, Any] = {"owner": owner.user, "access": access}
    return shown | ({"shared_with": shared_with, "participants": participants} if access == "own" else {})
