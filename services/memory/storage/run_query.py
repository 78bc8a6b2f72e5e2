"""The query for a tenant's runs, in SQL that both engines accept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from services.memory.storage.paging import split_page
from services.memory.storage.where import Where

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_WAITS = "EXISTS (SELECT 1 FROM gates WHERE gates.run_id = runs.run_id AND gates.state = 'open')"

_STATES = {
    "live": "NOT runs.is_ended",
    "running": f"NOT runs.is_ended AND NOT {_WAITS}",
    "waiting": f"NOT runs.is_ended AND {_WAITS}",
}
"""Conditions of the states that have no column."""

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

    def get_place(self) -> tuple[int, str]:
        """Return the sort key of lists of runs."""
        return self.began_at, self.run_id


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
    chat_id: str = ""
    credential: str = ""

    def render(self, source: str, chat_id: str, chat_owner: str) -> tuple[str, list[Any]]:
        """Return the statement, with numbered marks ($1), and its values: one more row than the page has.

        `source` joins runs with their leases and chats; `chat_id` and `chat_owner` are columns there.
        """
        where = Where()
        where.add("runs.of_tenant = {}", self.tenant)
        where.add_given(
            {
                "runs.agent_key = {}": self.agent_key or None,
                "runs.of_user = {}": self.user or None,
                f"{chat_id} = {{}}": self.chat_id or None,
                "runs.credential = {}": self.credential or None,
                "runs.started_at <= {}": self.began_before,
                "runs.started_at > {}": self.began_after,
                "runs.cost_nano_usd >= {}": self.cost_min,
                "runs.state = {}": self.state if self.state and self.state not in _STATES else None,
            }
        )
        if self.state in _STATES:
            where.add(_STATES[self.state])
        if self.run_ids:
            where.add(f"runs.run_id IN ({', '.join('{}' for _ in self.run_ids)})", *self.run_ids)
        if self.after is not None:
            where.add("(runs.started_at, runs.run_id) < ({}, {})", *self.after)
        order = f"ORDER BY runs.started_at DESC, runs.run_id DESC LIMIT {where.mark(self.size + 1)}"
        return f"{_render_select(chat_id)}, {chat_owner} FROM {source} WHERE {where} {order}", where.values

    def split(self, rows: Iterable[Sequence[Any]]) -> tuple[list[RunEntry], str]:
        """Return the page and the next page's token."""
        return split_page([RunEntry(*row) for row in rows], self.size, RunEntry.get_place)


def _render_select(chat_id: str) -> str:
    state = f"CASE WHEN runs.is_ended THEN coalesce(nullif(runs.state, ''), 'ended') WHEN {_WAITS} THEN 'waiting'"
    exact = {"chat_id": chat_id, "state": f"{state} ELSE 'running' END"}
    columns = ", ".join(exact.get(name, f"runs.{name}") for name in _COLUMNS)
    owner = "CASE WHEN runs.is_ended THEN '' ELSE coalesce(owner, '') END"
    return f"SELECT {columns}, {owner}, CASE WHEN runs.is_ended THEN 0 ELSE coalesce(expires_at, 0) END"
