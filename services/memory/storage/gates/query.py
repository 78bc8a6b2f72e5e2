"""The queries about gates that wait, in SQL that both engines take."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from headrace.errors import InvalidRequest
from services.memory.storage.gates.rows import COLUMNS, GateEntry
from services.memory.storage.paging import PAGE_DEFAULT, PAGE_MAX, TIME_AND_ID
from services.runtime.auth.access import list_names
from services.runtime.auth.identity import Identity

LIST_CHATS = """
SELECT chat_id FROM chats WHERE updated_at >= $2
AND EXISTS (SELECT 1 FROM gates WHERE gates.chat_id = chats.chat_id AND gates.tenant = $1) ORDER BY chat_id
"""
"""Chats of a tenant that have had gates, without those whose last line is older."""

_TOKEN = re.compile(TIME_AND_ID + r"\.(.{1,128})")


@dataclass(frozen=True, slots=True)
class GateQuery:
    """Which gates of a tenant that wait; absent fields allow any."""

    tenant: str
    answerer: Identity | None = None
    """Only those that this user may answer."""
    requester: str | None = None
    agent_key: str | None = None
    kind: str | None = None
    risk: str | None = None
    opened_before: int | None = None
    size: int = PAGE_MAX
    after: tuple[int, str, str] | None = None
    """Time, run and id of the gate before the page."""

    def render(self) -> tuple[str, list[Any]]:
        """Return the statement, with numbered marks ($1), and its values: one more row than the page has."""
        conditions, values = ["state = 'open'"], list[Any]()
        wanted = {
            "tenant": self.tenant,
            "requester": self.requester,
            "agent_key": self.agent_key,
            "kind": self.kind,
            "risk": self.risk,
        }
        for column, value in wanted.items():
            if value is not None:
                values.append(value)
                conditions.append(f"{column} = ${len(values)}")
        if self.answerer is not None:
            values.append(self.answerer.user)
            conditions.append(f"(not_requester = 0 OR requester <> ${len(values)})")
            names = list_names(self.answerer)
            marks = range(len(values) + 1, len(values) + len(names) + 1)
            values += [f"\n{name}\n" for name in names]
            # As both engines take it, with regard to case, whatever the names are made of.
            conditions.append("(" + " OR ".join(f"replace(answerers, ${at}, '') <> answerers" for at in marks) + ")")
        if self.opened_before is not None:
            values.append(self.opened_before)
            conditions.append(f"opened_at <= ${len(values)}")
        if self.after is not None:
            marks = ", ".join(f"${len(values) + index}" for index in (1, 2, 3))
            values += self.after
            conditions.append(f"(opened_at, run_id, gate_id) > ({marks})")
        values.append(self.size + 1)
        where = " AND ".join(conditions)
        order = f"ORDER BY opened_at, run_id, gate_id LIMIT ${len(values)}"
        return f"SELECT {COLUMNS} FROM gates WHERE {where} {order}", values

    def concerns(self, entry: GateEntry) -> bool:
        """Whether the query is about this gate, open or closed; render says the same to a database."""
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

    def split(self, gates: list[GateEntry]) -> tuple[list[GateEntry], str]:
        """Return the page and the next one's token."""
        page = gates[: self.size]
        last = page[-1] if len(gates) > self.size else None
        return page, "" if last is None else f"{last.opened_at}.{last.run_id}.{last.gate_id}"


def parse_page(size: int, token: str) -> tuple[int, tuple[int, str, str] | None]:
    """Read the page that a caller asks for (size 0: the default). Raises InvalidRequest."""
    if not 0 <= size <= PAGE_MAX:
        raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_MAX}, or 0 for {PAGE_DEFAULT}")
    match = _TOKEN.fullmatch(token)
    if token and match is None:
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
    return size or PAGE_DEFAULT, (int(match[1]), match[2], match[3]) if match else None
