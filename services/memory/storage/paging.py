"""Pages of the list of chats; a token is the time and id of the last chat shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import InvalidRequest
from services.runtime.auth.access import list_names

if TYPE_CHECKING:
    from services.memory.storage.index_rows import ChatEntry
    from services.runtime.auth.identity import Identity

PAGE_MAX = 200
PAGE_DEFAULT = 50

TIME_AND_ID = r"(-?[0-9]{1,18})\.([0-9a-f-]{36})"
"""Begins the tokens of lists in the order of time: the time of a page's last row, and its id."""

_TOKEN = re.compile(TIME_AND_ID)


@dataclass(frozen=True, slots=True)
class Page:
    size: int
    after: tuple[int, str] | None
    """The negated time and id of the chat before the page."""

    @classmethod
    def parse(cls, size: int, token: str) -> Page:
        """Read the page that a caller asks for (size 0: the default).

        Raises:
            InvalidRequest: The size or the token is not valid.
        """
        if not 0 <= size <= PAGE_MAX:
            raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_MAX}, or 0 for {PAGE_DEFAULT}")
        if not token:
            return cls(size or PAGE_DEFAULT, None)
        match = _TOKEN.fullmatch(token)
        if match is None:
            raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
        return cls(size or PAGE_DEFAULT, (-int(match[1]), match[2]))

    def render_shared(self, reader: Identity, user_column: str) -> tuple[str, list[Any]]:
        """Return the clauses that find the page's chats of others, and one more, with marks ($1) and their values."""
        values: list[Any] = [reader.tenant, reader.user, *(f"\n{name}\n" for name in list_names(reader))]
        # As both engines take it, with regard to case, whatever the names are made of.
        is_named = " OR ".join(f"replace(shared_with, ${at}, '') <> shared_with" for at in range(3, len(values) + 1))
        where = f"WHERE shared_with <> '' AND tenant = $1 AND {user_column} <> $2 AND ({is_named})"
        if self.after:
            where += f" AND (-updated_at, chat_id) > (${len(values) + 1}, ${len(values) + 2})"
            values += self.after
        values.append(self.size + 1)
        return f"{where} ORDER BY -updated_at, chat_id LIMIT ${len(values)}", values

    def split(self, chats: list[ChatEntry]) -> tuple[list[ChatEntry], str]:
        """Return the page and the next one's token; `chats` holds one more than the page if there are more."""
        page = chats[: self.size]
        return page, f"{page[-1].updated_at}.{page[-1].chat_id}" if len(chats) > self.size else ""
