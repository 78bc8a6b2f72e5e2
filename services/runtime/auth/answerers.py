"""Who may answer where a run waits for a person: the check, the same wherever it is asked."""

from __future__ import annotations

from collections.abc import Collection

from services.runtime.auth.identity import Identity

REQUESTER, TENANT = "requester", "tenant"
USER, ROLE = "user:", "role:"


def list_names(caller: Identity) -> list[str]:
    """Return the names by which rules of the caller's tenant mean the caller, whoever has asked."""
    return [TENANT, USER + caller.user, *(ROLE + role for role in sorted(caller.roles))]


def may_answer(any_of: Collection[str], requester: Identity, caller: Identity, *, not_requester: bool) -> bool:
    """Say whether `caller`, of the requester's tenant, may answer by this rule; an empty one means the requester.

    Who has made the key of one of them counts as that one, too: for two eyes they are the same.
    """
    if not_requester and not caller.persons.isdisjoint(requester.persons):
        return False
    is_requester = caller.user == requester.user
    names = {*list_names(caller), REQUESTER} if is_requester else {*list_names(caller)}
    return not names.isdisjoint(any_of or (REQUESTER,))
