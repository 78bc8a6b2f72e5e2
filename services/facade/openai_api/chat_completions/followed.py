"""The answers of a chat as chunks that have ids, so that a client that was cut or away comes back after any of them.

An extension by two request headers, of streams whose metadata has a chat_id:

* `Headrace-Resumable: true` asks as ever; the run goes on when its client is cut.
* `Last-Event-ID` with the id of a chunk asks nothing: the stream has what the chat said after it, over all its runs, to
  the end of the newest one. `0.0` is the chat's beginning.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field

from headrace.errors import InvalidRequest
from headrace.fold import TERMINAL
from headrace.v1 import agent_pb2
from services.facade.openai_api.chat_completions.answer import DONE, FIELDS, ChunkStream
from services.facade.openai_api.event_mapper import map_delta
from services.facade.openai_api.events import RunEnded
from services.facade.openai_api.request import AgentRequest

RESUMABLE, LAST_EVENT_ID = "Headrace-Resumable", "Last-Event-ID"

_FORM = re.compile(r"(\d{1,18})\.(\d{1,18})(?:;(\d{1,18});(\d{1,18}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """What a client has of a chat: the last event of a run, and how much the run had said, which comes in other pieces
    later."""

    n: str = "0"
    seq: int = 0
    told_chars: dict[str, int] = field(default_factory=dict[str, int])
    """By the chunk's field."""

    @classmethod
    def parse(cls, text: str) -> Place:
        """Raises InvalidRequest."""
        if (found := _FORM.fullmatch(text)) is None:
            raise InvalidRequest.of(LAST_EVENT_ID, "must be the id of a chunk of this chat, or 0.0")
        return cls(found[1], int(found[2]), dict(zip(FIELDS.values(), map(int, found.groups("0")[2:]), strict=True)))


def check_followed(request: AgentRequest, *, is_asked: bool) -> None:
    """Raises InvalidRequest."""
    for name, is_there in (("metadata.chat_id", bool(request.chat_id)), ("stream", request.stream)):
        if not is_there:
            raise InvalidRequest.of(name, f"is required with {RESUMABLE} and {LAST_EVENT_ID}")
    # Calls of its functions, and an answer that is kept back until it fits, are for the one request that asks.
    wanted = (("tools", request.tools or request.results), ("response_format", request.output_format))
    for name, value in wanted if is_asked else ():
        if value:
            raise InvalidRequest.of(name, f"must be absent with {RESUMABLE}")


class _FollowedAnswer(ChunkStream):
    """One run's chunks with ids, without those that the client has."""

    def __init__(self, request: AgentRequest, known: Place) -> None:
        super().__init__(request, lambda: True)
        self._known = known
        self._said = dict.fromkeys(FIELDS.values(), 0)
        self._seq = 0

    def map_delta(self, delta: agent_pb2.AgentDelta) -> Iterator[bytes]:
        self._seq = delta.seq
        for event in map_delta(delta):
            for frame in self.map_event(event):
                if frame:
                    yield frame

    def build_text(self, field: str, piece: str) -> bytes:
        missing = self._said[field] + len(piece) - self._known.told_chars.get(field, 0)
        self._said[field] += len(piece)
        return self._add_id(super().build_text(field, piece[-missing:])) if missing > 0 else b""

    def end_stream(self, end: RunEnded) -> Iterator[bytes]:
        if end.seq > self._known.seq:
            for frame in super().end_stream(end):
                if frame != DONE:  # there may be another run
                    yield self._add_id(frame)

    def _add_id(self, frame: bytes) -> bytes:
        chars = ";".join(str(max(self._said[name], self._known.told_chars.get(name, 0))) for name in self._said)
        return b"id: %b.%d;%b\n%b" % (self._known.n.encode(), self._seq, chars.encode(), frame)


class FollowedAnswers:
    """Takes the events of a chat's runs after a place, from the beginning of its run to the end of the run
    `last_run_id`."""

    def __init__(
        self,
        request: AgentRequest,
        place: Place | None,
        last_run_id: str,
        write_frame: Callable[[bytes], Awaitable[None]],
    ) -> None:
        """Without a place, what the other runs say is left out."""
        self._request = request
        self._place = place
        self._last_run_id = last_run_id
        self._write_frame = write_frame
        self._run_id = ""
        self._answer = _FollowedAnswer(request, Place())

    async def take(self, followed: agent_pb2.FollowDelta) -> bool:
        is_last = followed.run_id == self._last_run_id
        if not followed.run_id or (self._place is None and not is_last):
            return True
        if followed.run_id != self._run_id:
            n, _, _ = followed.cursor.partition(".")
            self._run_id = followed.run_id
            known = self._place if self._place is not None and self._place.n == n else Place(n)
            self._answer = _FollowedAnswer(self._request, known)
        for frame in self._answer.map_delta(followed.delta):
            await self._write_frame(frame)
        return not (is_last and followed.delta.WhichOneof("payload") in TERMINAL)
