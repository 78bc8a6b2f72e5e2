"""What is known of every chat without opening its log. Built from the logs at start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest

if TYPE_CHECKING:
    from services.memory.facts import ChatFacts, RunFacts

PAGE_MAX = 200
PAGE_DEFAULT = 50

_TOKEN = re.compile(r"([0-9]{1,15})\.([0-9a-f-]{36})")


class Index:
    """Committed facts of all chats. Touched on the event loop only."""

    def __init__(self) -> None:
        self._chats: dict[str, ChatFacts] = {}
        self._chat_of_run: dict[str, str] = {}

    def put(self, facts: ChatFacts) -> None:
        """Take over what is known of a chat now."""
        self._chats[facts.chat_id] = facts
        for run_id in reversed(facts.runs):
            if run_id in self._chat_of_run:
                break  # runs are only ever added, at the end
            self._chat_of_run[run_id] = facts.chat_id

    def remove(self, chat_id: str) -> None:
        for run_id in self._chats.pop(chat_id).runs:
            self._chat_of_run.pop(run_id, None)

    def get(self, chat_id: str) -> ChatFacts | None:
        return self._chats.get(chat_id)

    def chat_of(self, run_id: str) -> str | None:
        """The chat that a run belongs to."""
        return self._chat_of_run.get(run_id)

    def page(self, size: int, token: str) -> tuple[list[ChatFacts], str]:
        """Up to `size` chats (0: the default), the last changed first, and the token of the next page.

        Raises:
            InvalidRequest: The size or the token is none of ours.
        """
        if not 0 <= size <= PAGE_MAX:
            raise InvalidRequest.of("pageSize", f"must be 1 to {PAGE_MAX}, or 0 for {PAGE_DEFAULT}")
        size = size or PAGE_DEFAULT
        chats = sorted(self._chats.values(), key=_place)
        if token:
            after = _parse(token)
            chats = [facts for facts in chats if _place(facts) > after]
        page = chats[:size]
        return page, f"{page[-1].updated_at}.{page[-1].chat_id}" if len(chats) > size else ""

    def unfinished(self) -> list[tuple[ChatFacts, RunFacts]]:
        """Runs that have begun and not ended, the oldest first."""
        found = [(facts, run) for facts in self._chats.values() for run in facts.unfinished()]
        return sorted(found, key=lambda item: item[1].started_at)


def _place(facts: ChatFacts) -> tuple[int, str]:
    return -facts.updated_at, facts.chat_id


def _parse(token: str) -> tuple[int, str]:
    match = _TOKEN.fullmatch(token)
    if match is None:
        raise InvalidRequest.of("pageToken", "must be the nextPageToken of an earlier answer")
    return -int(match[1]), match[2]
