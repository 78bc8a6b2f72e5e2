"""Grants in the index: rows from the folded log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.memory.log.views.chat_info import ChatInfo


@dataclass(frozen=True, slots=True)
class GrantEntry:
    """A row; the order of its fields is that of the columns."""

    chat_id: str
    grant_id: str
    run_id: str
    tenant: str
    requester: str
    made_by: str
    """Users who have approved, each with a line break before and behind it."""
    made_at: int
    expires_at: int
    """Unix milliseconds; 0: with its run."""
    is_over: int
    """1 where something has ended it before its time."""
    event: str
    """The event grant.make, as JSON."""


GRANT_COLUMNS = ", ".join(GrantEntry.__dataclass_fields__)


def make_grant_rows(info: ChatInfo, since_n: int) -> list[GrantEntry]:
    """Return the rows of the chat's grants that lines from `since_n` on have changed."""
    return [
        GrantEntry(
            chat_id=info.chat_id,
            grant_id=grant.grant_id,
            run_id=grant.run_id,
            tenant=info.owner.tenant,
            requester=info.find_requester(grant.run_id),
            made_by="".join(f"\n{user}\n" for user in grant.made_by),
            made_at=grant.made_at,
            expires_at=grant.expires_at,
            is_over=int(bool(grant.end)),
            event=bytes(grant.event).decode(),
        )
        for grant in info.grants.values()
        if grant.changed_n >= since_n
    ]
