"""Pages of the list of chats; a token is the time and id of the last chat shown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest

if TYPE_CHECKING:
    from services.memory.storage.index_rows import ChatEntry

PAGE_MAX = 200
PAGE_DEFAULT = 50

_TOKEN = re.compile(r"([0-9]{1,15})\.([0-9a-f-]{36})")


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

    def split(self, chats: list[ChatEntry]) -> tuple[list[ChatEntry], str]:
        """Return the page and the next one's token; `chats` holds one more than the page if there are more."""
        page = chats[: self.size]
        return page, f"{page[-1].updated_at}.{page[-1].chat_id}" if len(chats) > self.size else ""
