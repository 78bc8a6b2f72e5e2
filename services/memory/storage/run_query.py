"""The query for a tenant's runs, in SQL that both engines accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.memory.storage.where import Place, Where, split_rows

if TYPE_CHECKING:
    from collections.abc import Sequence


# An EXISTS may be answered by reading all open gates, of all tenants.
_WAITS = "(SELECT 1 FROM gates WHERE gates.run_id = page.run_id AND gates.state = 'open' LIMIT 1) IS NOT NULL"

_LIVE = frozenset({"live", "running", "waiting"})
"""States that have no column, of runs that have not ended."""

_COLUMNS = (
    *("run_id", "chat_id", "of_user", "agent_key", "state", "reason", "started_at", "updated_at"),
    *("model_calls", "input_tokens", "output_tokens", "cost_nano_usd", "credential"),
)


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A row; its fields are in the order of the columns."""

    run_id: str
    chat_id: str
    user: str
    agent_key: str
    state: str
    """running, waiting, completed, cancelled, failed; or ended if an earlier version wrote it."""
    reason: str
    began_at: int
    updated_at: int
    model_calls: int
    input_tokens: int
    output_tokens: int
    cost_nano_usd: int
    credential: str
    owner: str
    """Empty if it has ended, or never had an owner."""
    lease_expires_at: int
    chat_owner: str


@dataclass(frozen=True, slots=True)
class RunQuery:
    """A query for a tenant's runs; absent fields allow any."""

    tenant: str
    size: int
    after: tuple[int, str] | None = None
    """Time and id of the last run before the page."""
    state: str = ""
    agent_key: str = ""
    user: str = ""
    began_before: int | None = None
    began_after: int | None = None
    cost_min: int | None = None
    run_ids: Sequence[str] = ()
    chat_ids: Sequence[str] = ()
    credential: str = ""

    def render(self, joins: str, of_chats: str, chat_id: str, chat_owner: str) -> tuple[str, list[Any]]:
        """Return the statement, with numbered marks ($1), and its values: one more row than the page has.

        `joins` adds the leases and chats of runs, with the columns `chat_id` and `chat_owner`; `of_chats` is the
        condition for the runs of chats.
        """
        where = Where()
        where.add("of_tenant = {}", self.tenant)
        where.add_given({"started_at > {}": self.began_after})
        if self.after is not None:  # it implies the other, by which SQLite would read the earlier pages again
            where.add("(started_at, run_id) < ({}, {})", *self.after)
        elif self.began_before is not None:
            where.add("started_at <= {}", self.began_before)
        for condition, ids in (("run_id IN ({})", self.run_ids), (of_chats, self.chat_ids)):
            if ids:
                where.add(condition.format(", ".join("{}" for _ in ids)), *ids)
        if is_live := self.state in _LIVE:
            where.add("NOT is_ended")
            if self.state != "live":
                where.add_filter(f"{'NOT ' if self.state == 'running' else ''}{_WAITS}")
        keys = {
            "of_user = {}": self.user or None,
            "agent_key = {}": self.agent_key or None,
            "state = {}": None if is_live else self.state or None,
        }
        where.add_filters(keys, 0 if is_live or self.chat_ids else 1)
        where.add_filters({"credential = {}": self.credential or None, "cost_nano_usd >= {}": self.cost_min})
        columns = f"{_render_columns(chat_id)}, {chat_owner}"
        return where.render_page(columns, "runs", "started_at DESC, run_id DESC", self.size, joins), where.values

    def split(self, rows: Sequence[Sequence[Any]]) -> tuple[list[RunEntry], Place | None]:
        """Return the page, and the place of the next one."""
        return split_rows(rows, self.size, RunEntry, lambda run: (run.began_at, run.run_id))


def _render_columns(chat_id: str) -> str:
    state = f"CASE WHEN page.is_ended THEN coalesce(nullif(page.state, ''), 'ended') WHEN {_WAITS} THEN 'waiting'"
    exact = {"chat_id": chat_id, "state": f"{state} ELSE 'running' END"}
    columns = ", ".join(exact.get(name, f"page.{name}") for name in _COLUMNS)
    owner = "CASE WHEN page.is_ended THEN '' ELSE coalesce(owner, '') END"
    return f"{columns}, {owner}, CASE WHEN page.is_ended THEN 0 ELSE coalesce(expires_at, 0) END"
