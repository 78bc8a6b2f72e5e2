"""One stream of a run: where it begins, and what its reader has already."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from services.facade.agui.cursor import Cursor
from services.facade.faces.call_ids import parse_call_id


@dataclass(frozen=True, slots=True)
class Segment:
    """A run that waits ends its stream, so a run may have several, each a run to the client."""

    thread_id: str
    client_run_id: str
    messages: Sequence[dict[str, Any]]
    """The request's, as they were sent."""

    start_seq: int = 0
    """The last event that an earlier segment has told."""

    cursor: Cursor | None = None
    """What the reader has of this segment; None when it has just asked for it."""

    n: str = ""
    """What names the run in a thread that is followed; empty where one run is."""

    answered: frozenset[str] = field(default_factory=frozenset[str])
    """Gates and calls that the request answers."""

    @property
    def is_continued(self) -> bool:
        """Whether the run has begun in another segment."""
        return self.start_seq > 0

    @property
    def known_seq(self) -> int:
        return self.cursor.seq if self.cursor else self.start_seq

    def list_known_ids(self) -> frozenset[str]:
        """Return the ids of the request's messages and calls, which the client has."""
        calls = [call.get("id", "") for message in self.messages for call in message.get("toolCalls") or ()]
        answered = [message["toolCallId"] for message in self.messages if "toolCallId" in message]
        results = [f"{call_id}_result" for call_id in answered]
        return frozenset([*(message["id"] for message in self.messages), *calls, *answered, *results])

    def map_told_calls(self) -> dict[tuple[str, str], str]:
        """Return the client's ids of calls of its functions that it was told, by run and call."""
        told = [*self.list_known_ids(), *(self.cursor.open_ids if self.cursor else ())]
        return {(call.run_id, call.tool_id): text for text in told if (call := parse_call_id(text)) is not None}
