"""Queries for waiting gates and active grants, in SQL that both engines accept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from services.memory.storage.gates.rows import COLUMNS, GRANT_COLUMNS, GateEntry, GrantEntry
from services.memory.storage.paging import PAGE_MAX
from services.memory.storage.where import Place, Where, split_rows
from services.runtime.auth.access import list_names
from services.runtime.auth.identity import Identity

LIST_CHATS = f"""
SELECT chat_id, (SELECT updated_at FROM chats WHERE chats.chat_id = page.chat_id) FROM (
    SELECT DISTINCT chat_id FROM gates WHERE tenant = $1 AND chat_id > $2 ORDER BY chat_id LIMIT {PAGE_MAX}
) AS page ORDER BY chat_id
"""
"""A page of a tenant's chats that have had gates, each with the time of its last line."""


async def read_gate_chats(read: Callable[[str], Awaitable[Sequence[Sequence[Any]]]], since: int) -> list[str]:
    """Return the chats of all pages, except those with an older last line; `read` returns the page after a chat."""
    found: list[str] = []
    after = ""
    while rows := await read(after):
        found += [chat_id for chat_id, updated_at in rows if updated_at >= since]
        after = rows[-1][0]
    return found


@dataclass(frozen=True, slots=True)
class GateQuery:
    """A query for waiting gates of a tenant; absent fields allow any."""

    tenant: str
    answerer: Identity | None = None
    """Only gates that this user may answer."""
    requester: str | None = None
    agent_key: str | None = None
    kind: str | None = None
    risk: str | None = None
    opened_before: int | None = None
    size: int = PAGE_MAX
    after: tuple[int, str, str] | None = None
    """Time, run and id of the last gate before the page."""

    def render(self) -> tuple[str, list[Any]]:
        """Return the statement, with numbered marks ($1), and its values: one more row than the page has."""
        where = Where("state = 'open'")
        where.add_given(
            {"tenant = {}": self.tenant, "requester = {}": self.requester, "opened_at <= {}": self.opened_before}
        )
        where.add_filters({"agent_key = {}": self.agent_key, "kind = {}": self.kind, "risk = {}": self.risk})
        if self.answerer is not None:
            where.add_filter("(not_requester = 0 OR requester <> {})", self.answerer.user)
            where.add_named("answerers", list_names(self.answerer))
        if self.after is not None:
            where.add("(opened_at, run_id, gate_id) > ({}, {}, {})", *self.after)
        return where.render_page(COLUMNS, "gates", "opened_at, run_id, gate_id", self.size), where.values

    def concerns(self, entry: GateEntry) -> bool:
        """Return whether the query matches this gate, open or closed; `render` states the same condition in SQL."""
        wanted = (
            (self.tenant, entry.tenant),
            (self.requester, entry.requester),
            (self.agent_key, entry.agent_key),
            (self.kind, entry.kind),
            (self.risk, entry.risk),
        )
        if any(value is not None and value != found for value, found in wanted):
            return False
        if self.opened_before is not None and entry.opened_at > self.opened_before:
            return False
        if self.answerer is None:
            return True
        if entry.not_requester and entry.requester == self.answerer.user:
            return False
        return any(f"\n{name}\n" in entry.answerers for name in list_names(self.answerer))

    def split(self, rows: Sequence[Sequence[Any]]) -> tuple[list[GateEntry], Place | None]:
        """Return the page, and the place of the next one."""
        return split_rows(rows, self.size, GateEntry, lambda gate: (gate.opened_at, gate.run_id, gate.gate_id))


@dataclass(frozen=True, slots=True)
class GrantQuery:
    """A query for a tenant's grants active at `now`; absent fields allow any."""

    tenant: str
    now: int
    user: Identity | None = None
    """Only grants made by this user, and those in the user's chats."""
    chat_id: str | None = None
    size: int = PAGE_MAX
    after: tuple[int, str, str] | None = None
    """Time, chat and id of the last grant before the page."""

    def render(self) -> tuple[str, list[Any]]:
        """Return the statement, with numbered marks ($1), and its values: one more row than the page has."""
        where = Where("is_over = 0")
        where.add("tenant = {}", self.tenant)
        where.add_filter("(expires_at = 0 OR expires_at > {})", self.now)
        if self.user is not None:
            user = self.user.user
            where.add_filter("(requester = {} OR replace(made_by, {}, '') <> made_by)", user, f"\n{user}\n")
        if self.chat_id is not None:
            where.add("chat_id = {}", self.chat_id)
        if self.after is not None:
            where.add("(made_at, chat_id, grant_id) > ({}, {}, {})", *self.after)
        return where.render_page(GRANT_COLUMNS, "gate_grants", "made_at, chat_id, grant_id", self.size), where.values

    def split(self, rows: Sequence[Sequence[Any]]) -> tuple[list[GrantEntry], Place | None]:
        """Return the page, and the place of the next one."""
        return split_rows(rows, self.size, GrantEntry, lambda grant: (grant.made_at, grant.chat_id, grant.grant_id))
