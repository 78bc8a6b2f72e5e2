"""The interface of what erasing needs of a store beside its other parts. All of it may be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

IsHeld: TypeAlias = "Callable[[str, str], bool]"
"""Says of a user and a chat of theirs whether a hold keeps it."""

DELETE_DELIVERIES_ABOUT = """
DELETE FROM deliveries WHERE tenant = $1 AND replace(payload, $2, '') <> payload RETURNING 1
"""
"""In SQL that both engines take, which both tell letters' cases apart."""


def make_name_member(user: str) -> str:
    """Return what the payload of an event about a user has in it (event_rows.make_run_ended), and no other one."""
    return f'"user":{msgspec.json.encode(user).decode()}'


class StoreEraser(Protocol):
    @property
    def settles_s(self) -> float:
        """After which time every service of the store has seen a record; 0: there is only this one."""
        ...

    @property
    def receipt_after_s(self) -> float:
        """After which time no service has a request on its way that it has taken before it has seen a record."""
        ...

    async def list_users(self, tenant: str) -> list[str]:
        """List everybody of whom the tenant's chats, runs, facts, schedules or sums know."""
        ...

    async def rewrite_chat(self, chat_id: str, redact: Callable[[bytes], bytes]) -> None:
        """Put what `redact` makes of the chat's log, which has as many lines, in its place; it is called in a thread.

        Raises:
            ChatBusy: A run of it is unfinished.
            NotFound: It does not exist.
        """
        ...

    async def count_facts(self, tenant: str, user: str) -> tuple[int, int]:
        """Count what delete_facts would delete, and how much of it has a text."""
        ...

    async def list_unreadable(self, tenant: str) -> dict[str, list[str]]:
        """Name what there is of the tenant of which only a lost key would say whose it is, by kind: chats, facts,
        schedules, agents. Raises Overloaded where a key may be had in a moment."""
        ...

    async def delete_unreadable(self, kind: str, names: Collection[str]) -> None:
        """Delete what list_unreadable has named."""
        ...

    async def delete_facts(self, tenant: str, user: str) -> int:
        """Delete what the user has stored, tombstones and facts of the tenant included; return how many had a text."""
        ...

    async def delete_deliveries(self, tenant: str, run_ids: Collection[str]) -> int:
        """Delete what webhooks are told, or were, of the runs."""
        ...

    async def delete_deliveries_about(self, tenant: str, user: str) -> int:
        """Delete what webhooks are told, or were, with the user's name in it: of runs that are gone, too."""
        ...

    async def rename_spender(self, tenant: str, user: str, name: str) -> int:
        """Give another name to what deleted chats have cost the user, and forget by which keys; return the number of
        rows."""
        ...

    async def delete_spend(self, tenant: str) -> int:
        """Delete all that the tenant's deleted chats have cost."""
        ...

    async def delete_agents(self, tenant: str) -> int:
        """Delete the versions of the tenant's agents."""
        ...

    async def scrub(self, tenant: str, is_held: IsHeld) -> None:
        """Clear what deleted rows have left in the store's files, and what nobody can say of whose it is but that it is
        the tenant's, if anybody's."""
        ...
