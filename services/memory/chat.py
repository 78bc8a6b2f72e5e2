"""A chat whose log is in memory: its committed lines, and what the next append is held against."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest, LogDamaged, NotFound, StaleLease
from services.memory.facts import ASKED, ChatFacts, folded
from services.memory.lines import Known, Line, Query

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Span:
    """The numbers that an append got."""

    first_n: int
    last_n: int


@dataclass(slots=True, weakref_slot=True, eq=False)
class Chat:
    """One for each chat that is in use. Touched on the event loop only; its facts may run ahead of the disk while
    an append is being written, its lines never do.
    """

    chat_id: str
    facts: ChatFacts
    size_bytes: int = 0
    """Length of the log file, as far as it is acknowledged."""
    runs: dict[str, list[Line]] = field(default_factory=dict[str, "list[Line]"])
    """Committed lines by run, runs in the order of their first line."""
    appends: dict[str, Span] = field(default_factory=dict[str, Span])
    """By request id: the uuid of the first line, which alone knows the last; nobody asks for the others."""
    is_deleted: bool = False

    @classmethod
    def of(cls, chat_id: str, lines: list[Line], size_bytes: int, *, is_damaged: bool) -> Chat:
        """The chat that a log file holds."""
        chat = cls(chat_id, folded(chat_id, lines, is_damaged=is_damaged), size_bytes)
        chat.take(lines)
        chat.appends = {line.uuid: Span(line.n, line.n + line.lines - 1) for line in lines}
        return chat

    def take(self, lines: Sequence[Line]) -> None:
        """Lines that are committed now."""
        for line in lines:
            self.runs.setdefault(line.run_id, []).append(line)

    def lines(self) -> Iterator[Line]:
        """All committed lines, in the order of the log."""
        return iter(sorted((line for lines in self.runs.values() for line in lines), key=lambda line: line.n))

    def duplicate(self, lines: Sequence[Known]) -> str | None:
        """The run that has the request id of the query in `lines` already."""
        first = lines[0]
        request_id = ASKED.decode(first.query).request_id if isinstance(first, Query) else ""
        return self.facts.run_asked_as(request_id) if request_id else None

    def check(self, lines: Sequence[Known]) -> None:
        """Raise the error for lines that this log cannot take."""
        first, chat_id = lines[0], self.chat_id
        run = self.facts.runs.get(first.run_id)
        if self.is_deleted or (not self.facts.last_n and not isinstance(first, Query)):
            raise NotFound(f"chat {chat_id} does not exist; its first line must be a query", chatId=chat_id)
        if self.facts.is_damaged:
            raise LogDamaged(f"the log of chat {chat_id} is damaged; it can be read, not written", chatId=chat_id)
        if isinstance(first, Query):
            if run is not None:
                raise InvalidRequest.of("lines[0].query", f"must be the run's only one: run {run.run_id} has begun")
        elif run is None:
            raise NotFound(f"run {first.run_id} has no query line in chat {chat_id}", runId=first.run_id)
        elif run.is_ended:
            raise StaleLease(f"run {run.run_id} has ended and takes no more lines", runId=run.run_id)
        elif first.generation < run.generation:
            raise StaleLease(
                f"run {run.run_id} was taken over with generation {run.generation}; {first.generation} is stale",
                runId=run.run_id,
                generation=run.generation,
            )
