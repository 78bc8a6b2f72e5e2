"""Pages of lists. A token is the time and id of the last row read."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from headrace.errors import InvalidRequest
from services.memory.storage.index_rows import ChatEntry
from services.memory.storage.where import Place, Where, split_rows
from services.runtime.auth.access import list_names

if TYPE_CHECKING:
    from services.runtime.auth.identity import Identity

Query = TypeVar("Query", bound=Any)
Row = TypeVar("Row")

PAGE_MAX = 200
PAGE_DEFAULT = 50

READS_MAX = 20
"""Maximum statements that read a page for a caller."""

_TIME_AND_ID = r"(-?[0-9]{1,18})\.([0-9a-f-]{36})"
_PLACE = re.compile(_TIME_AND_ID)
_NAMED_PLACE = re.compile(_TIME_AND_ID + r"\.(.{1,128})")


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the list of chats."""

    size: int
    after: tuple[int, str] | None = None
    """The negated time and id of the last chat before the page."""

    @classmethod
    def parse(cls, size: int, token: str) -> Page:
        """Parse a caller's page (size 0: the default). Raises InvalidRequest."""
        return cls(*parse_page(size, token))

    def render(self, columns: str, who: Identity, user_column: str, *, is_shared: bool) -> tuple[str, list[Any]]:
        """Return the statement for the page of a user's chats, or of others' chats that the user may read, with
        numbered marks ($1), and its values."""
        where = Where()
        where.add("tenant = {}", who.tenant)
        if is_shared:
            where.add("shared_with <> ''")
            where.add_filter(f"{user_column} <> {{}}", who.user)
            where.add_named("shared_with", list_names(who))
        else:
            where.add(f"{user_column} = {{}}", who.user)
        if self.after:
            where.add("(-updated_at, chat_id) > ({}, {})", *self.after)
        return where.render_page(columns, "chats", "-updated_at, chat_id", self.size), where.values

    def split(self, rows: Sequence[Sequence[Any]]) -> tuple[list[ChatEntry], Place | None]:
        """Return the page, and the place of the next one."""
        return split_rows(rows, self.size, ChatEntry, lambda chat: (-chat.updated_at, chat.chat_id))


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
    return page, make_token(get_place(page[-1]) if len(rows) > size else None)


def make_token(place: Place | None) -> str:
    """Return the token of the page after a place, as the functions above parse it; empty for None."""
    return ".".join(map(str, place or ()))


Read: TypeAlias = Callable[[Query], Awaitable[tuple[list[Row], Place | None]]]
"""Reads the page of a query, which has the fields `size` and `after`, and returns the place of the next one."""


async def read_page(read: Read[Query, Row], query: Query) -> tuple[list[Row], str]:
    """Return a page for a caller, and the next one's token. Where few rows match it has fewer, even none."""
    found: list[Row] = []
    for _ in range(READS_MAX):
        rows, after = await read(replace(query, size=query.size - len(found)))
        found += rows
        query = replace(query, after=after)
        if after is None or len(found) == query.size:
            break
    return found, make_token(query.after)


async def read_pages(read: Read[Query, Row], query: Query) -> AsyncGenerator[Row]:
    """Yield the rows of all pages."""
    while True:
        rows, after = await read(query)
        for row in rows:
            yield row
        if after is None:
            return
        query = replace(query, after=after)
