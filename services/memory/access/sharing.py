"""Chats that their owners share with others of the tenant, who may read them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from headrace.errors import InvalidRequest
from services.runtime.auth import identity
from services.runtime.auth.answerers import list_names
from services.runtime.auth.identity import Identity

_NAME = re.compile(r"tenant|user:[!-~]{1,128}|role:[!-+\--~]{1,64}")


def parse_names(names: Iterable[str]) -> list[str]:
    """Return the names that a request gives, in order, each once. Raises InvalidRequest."""
    found = sorted(set(names))
    if any(_NAME.fullmatch(name) is None for name in found):
        raise InvalidRequest.of("sharedWith", "must be names: tenant, user:NAME or role:NAME")
    return found


def may_read(owner: Identity, shared_with: Collection[str]) -> bool:
    """Say whether the caller may read a chat: its owner, and who of the same tenant is named."""
    caller = identity.require_identity()
    if caller == owner:
        return True
    return caller.tenant == owner.tenant and not set(shared_with).isdisjoint(list_names(caller))


def show_names(owner: Identity, shared_with: Collection[str]) -> list[str]:
    """Return with whom a chat is shared, to its owner; others need not know."""
    return [*shared_with] if identity.require_identity() == owner else []
