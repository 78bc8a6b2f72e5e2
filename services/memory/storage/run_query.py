"""The query about runs of a tenant, in SQL that both engines take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest
from services.memory.storage.paging import PAGE_DEFAULT, PAGE_MAX, TIME_AND_ID

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


_TOKEN = re.compile(TIME_AND_ID)

_WAITS = "EXISTS (SELECT 1 FROM gates WHERE gates.run_id = runs.run_id AND gates.state = 'open')"

_STATES = {
    "live": "NOT runs.is_ended",
    "running": f"NOT runs.is_ended AND NOT {_WAITS}",
    "waiting": f"NOT runs.is_ended AND {_WAITS}",
}
"""Conditions of the states that are in no column."""

_COLUMNS = (
    *("run_id", "chat_id", "of_user", "agent_key", "state", "reason", "started_at", "updated_at"),
    *("model_calls", "input_tokens", "output_tokens", "cost_nano_usd", "credential"),
)


@dataclass(frozen=True, slots=True)
class RunEntry:
    """A row; the order of its fields is that of the columns."""

    run_id: str
    chat_id: str
    user: str
    agent_key: str
    state: str
    """running, waiting, completed, cancelled, failed; ended where a version before this one wrote it."""
    reason: str
    began_at: int
    updated_at: int
    model_calls: int
    input_tokens: int
    output_tokens: int
    cost_nano_usd: int
    credential: str
    owner: str
    """Empty: it has ended, or nobody has ever owned it."""
    lease_expires_at: int
    chat_owner: str


@dataclass(frozen=True, slots=True)
class RunQuery:
    """Which runs of a tenant; absent fields allow any."""

    tenant: str
    size: int
    after: tuple[int, str] | None = None
    """Time and id of the run before the page."""
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
        """Return the statement, with numbered marks ($1), and its values: one more row than the page has. `source`
        joins runs with their leases and chats; `chat_id` and `chat_owner` are columns there."""
        conditions, values = ["runs.of_tenant = $1"], list[Any]([self.tenant])
        tests = {
            "runs.agent_key =": self.agent_key or None,
            "runs.of_user =": self.user or None,
            f"{chat_id} =": self.chat_id or None,
            "runs.credential =": self.credential or None,
            "runs.started_at <=": self.began_before,
            "runs.started_at >": self.began_after,
            "runs.cost_nano_usd >=": self.cost_min,
            "runs.state =": self.state if self.state and self.state not in _STATES else None,
        }
        for test, value in tests.items():
            if value is not None:
                values.append(value)
                conditions.append(f"{test} ${len(values)}")
        if self.state in _STATES:
            conditions.append(_STATES[self.state])
        if self.run_ids:
            marks = ", ".join(f"${len(values) + index}" for index in range(1, len(self.run_ids) + 1))
            values += self.run_ids
            conditions.append(f"runs.run_id IN ({marks})")
        if self.after is not None:
            conditions.append(f"(runs.started_at, runs.run_id) < (${len(values) + 1}, ${len(values) + 2})")
            values += self.after
        values.append(self.size + 1)
        order = f"ORDER BY runs.started_at DESC, runs.run_id DESC LIMIT ${len(values)}"
        return f"{_render_select(chat_id)}, {chat_owner} FROM {source} WHERE {' AND '.join(conditions)} {order}", values

    def split(self, rows: Iterable[Sequence[Any]]) -> tuple[list[RunEntry], str]:
        """Return the page and the next one's token."""
        runs = [RunEntry(*row) for row in rows]
        page = runs[: self.size]
        return page, f"{page[-1].began_at}.{page[-1].run_id}" if len(runs) > self.size else ""


def parse_run_page(size: int, token: str) -> tuple[int, tuple[int, str] | None]:
    """Read the page that a caller asks for (size 0: the default). Raises InvalidRequest."""
    if not 0 <= size <= PAGE_MAX:
        raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_MAX}, or 0 for {PAGE_DEFAULT}")
    match = _TOKEN.fullmatch(token)
    if token and match is None:
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
    return size or PAGE_DEFAULT, (int(match[1]), match[2]) if match else None


def _render_select(chat_id: str) -> str:
    state = f"CASE WHEN runs.is_ended THEN coalesce(nullif(runs.state, ''), 'ended') WHEN {_WAITS} THEN 'waiting'"
    exact = {"chat_id": chat_id, "state": f"{state} ELSE 'running' END"}
    columns = ", ".join(exact.get(name, f"runs.{name}") for name in _COLUMNS)
    owner = "CASE WHEN runs.is_ended THEN '' ELSE coalesce(owner, '') END"
    return f"SELECT {columns}, {owner}, CASE WHEN runs.is_ended THEN 0 ELSE coalesce(expires_at, 0) END"
