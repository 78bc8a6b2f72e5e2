"""Rules about users: who may use a chat, who may answer a waiting run, and which chat belongs to a user's own key."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from hashlib import sha256
from typing import Literal, TypeAlias

from headrace.errors import InvalidRequest
from services.runtime.auth.identity import Identity

Access: TypeAlias = Literal["", "read", "take_part", "own"]
"""Empty: nothing, and the chat is reported as missing."""

PARTICIPATING = frozenset({"own", "take_part"})

RUN_ONLY = "run"
"""Scope left to a user who has lost their chat while their run continues: that run's name."""


def find_access(user: Identity, owner: Identity, shared_with: Collection[str], participants: Collection[str]) -> Access:
    if user == owner:
        return "own"
    if user.tenant != owner.tenant:
        return ""
    names = set(list_names(user))
    if not names.isdisjoint(participants):
        return "take_part"
    return "" if names.isdisjoint(shared_with) else "read"


REQUESTER, TENANT = "requester", "tenant"
USER, ROLE = "user:", "role:"


def list_names(caller: Identity) -> list[str]:
    """Return the names that match the caller in their tenant's rules, also when a service calls on their behalf."""
    return [TENANT, USER + caller.user, *(ROLE + role for role in sorted(caller.roles))]


def may_answer(any_of: Collection[str], requester: Identity, caller: Identity, *, not_requester: bool) -> bool:
    """Return whether `caller`, of the requester's tenant, may answer under this rule; an empty rule means the
    requester.

    For four eyes, the creator of an API key and the key's holder are the same person.
    """
    if not_requester and not caller.persons.isdisjoint(requester.persons):
        return False
    is_requester = caller.user == requester.user
    names = {*list_names(caller), REQUESTER} if is_requester else {*list_names(caller)}
    return not names.isdisjoint(any_of or (REQUESTER,))


_VERSION = 8


def find_keyed_chat(who: Identity, key: str) -> str:
    """Return the id of the chat for which the user chose this key."""
    # The lengths separate the parts: no other pair of user and key gives the same text.
    source = b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in (who.tenant, who.user, key))
    bits = int.from_bytes(sha256(b"headrace chat" + source).digest()[:16])
    bits = bits & ~(0xF << 76) | _VERSION << 76
    return str(uuid.UUID(int=bits & ~(0x3 << 62) | 0x2 << 62))


def resolve_chat(who: Identity, chat_id: str, chat_key: str) -> str:
    """Return the id of the user's chat with this key; `chat_id` without a key.

    Raises:
        InvalidRequest: The key belongs to another chat than `chat_id`.
    """
    if not chat_key:
        return chat_id
    keyed = find_keyed_chat(who, chat_key)
    if chat_id not in ("", keyed):
        raise InvalidRequest.of("chatKey", "is the key of another chat than chatId")
    return keyed


def is_keyed_chat(chat_id: str) -> bool:
    """Return whether an id, a UUID in its canonical form, was derived from a key."""
    return chat_id[14] == str(_VERSION)
