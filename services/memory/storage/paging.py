"""Pages of lists. A token is the time and id of the last row shown."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from headrace.errors import InvalidRequest
from services.memory.storage.where import Where
from services.runtime.auth.access import list_names

if TYPE_CHECKING:
    from services.memory.storage.index_rows import ChatEntry
    from services.runtime.auth.identity import Identity

Query = TypeVar("Query", bound=Any)
Row = TypeVar("Row")

PAGE_MAX = 200
PAGE_DEFAULT = 50

_TIME_AND_ID = r"(-?[0-9]{1,18})\.([0-9a-f-]{36})"
_PLACE = re.compile(_TIME_AND_ID)
_NAMED_PLACE = re.compile(_TIME_AND_ID + r"\.(.{1,128})")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the list of chats."""

    size: int
    after: tuple[int, str] | None
    """The negated time and id of the last chat before the page."""

    @classmethod
    def parse(cls, size: int, token: str) -> Page:
        """Parse a caller's page (size 0: the default). Raises InvalidRequest."""
        size, after = parse_page(size, token)
        return cls(size, after and (-after[0], after[1]))

    def render_shared(self, reader: Identity, user_column: str) -> tuple[str, list[Any]]:
        """Return the clauses for the page's chats of other users, and one more, with marks ($1) and their values."""
        where = Where("shared_with <> ''")
        where.add(f"tenant = {{}} AND {user_column} <> {{}}", reader.tenant, reader.user)
        where.add_named("shared_with", list_names(reader))
        return f"WHERE {self.render(where)}", where.values

    def render(self, where: Where) -> str:
        """Return the conditions, order and limit for the page's chats, and one more."""
        if self.after:
            where.add("(-updated_at, chat_id) > ({}, {})", *self.after)
        return f"{where} ORDER BY -updated_at, chat_id LIMIT {where.mark(self.size + 1)}"

    def split(self, chats: list[ChatEntry]) -> tuple[list[ChatEntry], str]:
        return split_page(chats, self.size, lambda chat: (chat.updated_at, chat.chat_id))


def get_chat_place(chat: ChatEntry) -> tuple[int, str]:
    """Return the sort key of the list of chats."""
    return -chat.updated_at, chat.chat_id


def match_page(size: int, token: str, form: re.Pattern[str]) -> tuple[int, re.Match[str] | None]:
    """Parse a page's size (0: the default) and token. Raises InvalidRequest."""
    if not 0 <= size <= PAGE_MAX:
        raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_MAX}, or 0 for {PAGE_DEFAULT}")
    match = form.fullmatch(token)
    if token and match is None:
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
    return size or PAGE_DEFAULT, match


def parse_page(size: int, token: str) -> tuple[int, tuple[int, str] | None]:
    """Return a page's size and place, ordered by time and id. Raises InvalidRequest."""
    size, match = match_page(size, token, _PLACE)
    return size, (int(match[1]), match[2]) if match else None


def parse_named_page(size: int, token: str) -> tuple[int, tuple[int, str, str] | None]:
    """Return a page's size and place, ordered by time, id and name. Raises InvalidRequest."""
    size, match = match_page(size, token, _NAMED_PLACE)
    return size, (int(match[1]), match[2], match[3]) if match else None


def split_page(rows: Sequence[Row], size: int, get_place: Callable[[Row], tuple[object, ...]]) -> tuple[list[Row], str]:
    """Return the page and the next page's token; `rows` has one more than the page if there are more."""
    page = list(rows[:size])
    return page, ".".join(map(str, get_place(page[-1]))) if len(rows) > size else ""


async def read_pages(
    read: Callable[[Query], Awaitable[tuple[list[Row], str]]], query: Query, get_place: Callable[[Row], tuple[Any, ...]]
) -> AsyncGenerator[Row]:
    """Yield the rows of all pages; `query` must have a field `after` for the place of the last row."""
    while True:
        rows, token = await read(query)
        for row in rows:
            yield row
        if not token:
            return
        query = replace(query, after=get_place(rows[-1]))
