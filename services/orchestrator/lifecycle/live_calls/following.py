"""Cursors of followed chats, and the sink that adds them to a run's events."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headrace.errors import InvalidRequest
from headrace.run_states import STATES_BY_EVENT
from headrace.v1 import agent_pb2
from services.runtime.rpc.push_stream import MessageSink

_FORM = re.compile(r"(\d{1,18})\.(\d{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place in a chat, which its log and the numbers of events name: it outlives every process."""

    n: int = 0
    """Number of the first line of a run, or of the line of an event between runs."""

    seq: int = 0
    """Number of the run's last event that was sent; 0 before the first, and between runs."""

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """Raises InvalidRequest."""
        if not text:
            return cls()
        if (match := _FORM.fullmatch(text)) is None:
            raise InvalidRequest.of("cursor", "must be of an event of this chat, such as '12.34'")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.n}.{self.seq}"


class RunSink:
    """Sends the events of one run of a followed chat."""

    def __init__(self, out: MessageSink, run_id: str, after: Cursor) -> None:
        self.wait_until_drained = out.wait_until_drained
        self.run_id = run_id
        self.is_over = False
        self._out = out
        self._at = after

    @property
    def last_seq(self) -> int:
        return self._at.seq

    def send(self, message: bytes) -> bool:
        delta = agent_pb2.AgentDelta.FromString(message)
        self._at = Cursor(self._at.n, delta.seq)
        self.is_over = delta.WhichOneof("payload") in STATES_BY_EVENT
        return self._out.send(encode_delta(self._at, self.run_id, delta))


def encode_delta(cursor: Cursor, run_id: str, delta: agent_pb2.AgentDelta) -> bytes:
    return agent_pb2.FollowDelta(cursor=str(cursor), run_id=run_id, delta=delta).SerializeToString()
