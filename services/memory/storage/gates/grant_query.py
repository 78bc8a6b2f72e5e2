"""Which grants a page lists."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest
from services.memory.storage.gates.rows import GRANT_COLUMNS, GrantEntry
from services.memory.storage.paging import PAGE_DEFAULT, PAGE_MAX, TIME_AND_ID

if TYPE_CHECKING:
    from services.runtime.auth.identity import Identity


_TOKEN = re.compile(TIME_AND_ID + r"\.(.{1,128})")


@dataclass(frozen=True, slots=True)
class GrantQuery:
    """Which grants of a tenant that are in force at `now`; absent fields allow any."""

    tenant: str
    now: int
    user: Identity | None = None
    """Only those that this user has made, and those of the user's chats."""
    chat_id: str | None = None
    size: int = PAGE_MAX
    after: tuple[int, str, str] | None = None
    """Time, chat and id of the grant before the page."""

    def render(self) -> tuple[str, list[Any]]:
        """Return the statement, with numbered marks ($1), and its values: one more row than the page has."""
        conditions = ["is_over = 0", "tenant = $1", "(expires_at = 0 OR expires_at > $2)"]
        values: list[Any] = [self.tenant, self.now]
        if self.user is not None:
            values += [self.user.user, f"\n{self.user.user}\n"]
            conditions.append(f"(requester = ${len(values) - 1} OR replace(made_by, ${len(values)}, '') <> made_by)")
        if self.chat_id is not None:
            values.append(self.chat_id)
            conditions.append(f"chat_id = ${len(values)}")
        if self.after is not None:
            marks = ", ".join(f"${len(values) + index}" for index in (1, 2, 3))
            values += self.after
            conditions.append(f"(made_at, chat_id, grant_id) > ({marks})")
        values.append(self.size + 1)
        order = f"ORDER BY made_at, chat_id, grant_id LIMIT ${len(values)}"
        return f"SELECT {GRANT_COLUMNS} FROM gate_grants WHERE {' AND '.join(conditions)} {order}", values

    def split(self, rows: Iterable[Iterable[Any]]) -> tuple[list[GrantEntry], str]:
        """Return the page and the next one's token."""
        grants = [GrantEntry(*row) for row in rows]
        page = grants[: self.size]
        last = page[-1] if len(grants) > self.size else None
        return page, "" if last is None else f"{last.made_at}.{last.chat_id}.{last.grant_id}"


def parse_grant_page(size: int, token: str) -> tuple[int, tuple[int, str, str] | None]:
    """Read the page that a caller asks for (size 0: the default). Raises InvalidRequest."""
    if not 0 <= size <= PAGE_MAX:
        raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_MAX}, or 0 for {PAGE_DEFAULT}")
    match = _TOKEN.fullmatch(token)
    if token and match is None:
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
    return size or PAGE_DEFAULT, (int(match[1]), match[2], match[3]) if match else None
