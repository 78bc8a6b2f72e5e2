"""The interface of what erasing needs of a store beside its other parts. All of it may be repeated."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

IsHeld: TypeAlias = "Callable[[str, str], bool]"
"""Says of a user and a chat of theirs whether a hold keeps it."""


class StoreEraser(Protocol):
    @property
    def settles_s(self) -> float:
        """After which time every service of the store has seen a record; 0: there is only this one."""
        ...

    @property
    def receipt_after_s(self) -> float:
        """After which time no service has a request on its way that it has taken before it has seen a record."""
        ...

    async def list_users(self, tenant: str) -> set[str]:
        """List the users that the tenant's chats, runs and sums name."""
        ...

    async def rewrite_chat(self, chat_id: str, redact: Callable[[bytes], bytes]) -> None:
        """Put what `redact` makes of the chat's log, which has as many lines, in its place; it is called in a thread.

        Raises:
            ChatBusy: A run of it is unfinished.
            NotFound: It does not exist.
        """
        ...

    async def list_unreadable_chats(self, tenant: str) -> list[str]:
        """List the tenant's chats of which only a lost key would say whose they are."""
        ...

    async def delete_unreadable_chat(self, chat_id: str) -> None:
        """Delete a chat that list_unreadable_chats has named."""
        ...

    async def rename_spender(self, tenant: str, user: str, name: str) -> int:
        """Give another name to what deleted chats have cost the user, and forget by which keys; return the number of
        rows."""
        ...

    async def delete_spend(self, tenant: str) -> int:
        """Delete all that the tenant's deleted chats have cost."""
        ...

    async def scrub(self, tenant: str, is_held: IsHeld) -> None:
        """Clear what deleted rows have left in the store's files, and what nobody can say of whose it is but that it is
        the tenant's, if anybody's."""
        ...
