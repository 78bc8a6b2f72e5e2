"""Sends events to a run's readers; publishing never waits.

A held event and all that follow wait until the log has it. A reader that falls too far behind is brought up to date
from the journal.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf.message import Message

from headrace.errors import OutOfRange, Overloaded
from headrace.fold import TERMINAL
from headrace.v1 import agent_pb2
from services.orchestrator.run.events.blocks import TextBlock
from services.orchestrator.run.events.journal import Journal
from services.orchestrator.run.events.kinds import KINDS
from services.orchestrator.run.single_waiter_event import SingleWaiterEvent
from services.orchestrator.tape.tape import Tape
from services.runtime.clock import now_ms
from services.runtime.rpc.push_stream import MessageSink

QUEUE_MAX = 4096
"""About 1 MB, a minute of a fast model."""


class Followed(NamedTuple):
    sent: int
    last_seq: int


class _Reader:
    __slots__ = ("flows", "is_behind", "is_full", "outlet", "queue", "sent", "seq", "woken")

    def __init__(self, outlet: MessageSink, last_seq: int) -> None:
        self.outlet = outlet
        self.seq = last_seq
        """Seq of the last event sent; 0 before the first."""
        self.sent = 0
        self.queue: list[tuple[int, bytes]] = []
        self.flows = False
        self.is_full = False
        self.is_behind = True
        self.woken = SingleWaiterEvent()

    def put(self, seq: int, event: bytes) -> None:
        self.flows = False
        if len(self.queue) >= QUEUE_MAX:
            self.is_behind = True
            self.queue.clear()
        if not self.is_behind:
            self.queue.append((seq, event))

    def send(self, seq: int, event: bytes) -> None:
        self.seq = seq
        self.sent += 1
        if not self.outlet.send(event):
            self.flows = False
            self.is_full = True
            self.woken.set()


class Feed:
    """Written by the run's task, read by any number of readers."""

    def __init__(self, seq: int = 0, history: Iterable[agent_pb2.AgentDelta] = ()) -> None:
        """Continue after `seq`, the last event's number, and earlier owners' events."""
        self.seq = seq
        self.ended = False
        self.is_cut = False
        """Whether readers must attach again: the run goes on elsewhere, or later."""
        self.is_parked = False
        """Whether that was announced: who follows attaches them again."""
        self._journal = Journal()
        self._journal.recall(history)
        self._readers: dict[_Reader, None] = {}
        """In the order in which they came, in which they are served."""
        self._held: list[int] = []
        self.tape: Tape | None = None
        """Has each event too, where the run is recorded."""

    @property
    def readers(self) -> int:
        return len(self._readers)

    def since(self, last_seq: int) -> list[agent_pb2.AgentDelta]:
        return self._journal.since(last_seq)

    def publish(
        self, payload: Message, *, held: bool = False, subagent_id: str | None = None, task_id: str | None = None
    ) -> agent_pb2.AgentDelta:
        """Number and send an event; readers get a `held` one only when it is released."""
        kind = KINDS[type(payload)]
        self.seq += 1
        fields: Any = {kind: payload}
        delta = agent_pb2.AgentDelta(
            seq=self.seq, timestamp=now_ms(), subagent_id=subagent_id, task_id=task_id, **fields
        )
        self._journal.note(kind, delta)
        if held:
            self._held.append(self.seq)
        if self._readers or self.tape is not None:
            self._pass_on(delta.SerializeToString())
        if kind in TERMINAL:
            self.ended = True
            self._wake_readers()
        return delta

    def open_text(self, block_id: str) -> TextBlock:
        return self._journal.open_text(block_id)

    def write(self, block: TextBlock, text: bytes) -> None:
        self.seq += 1
        block.add(text, self.seq, now_ms())
        if self._readers or self.tape is not None:
            self._pass_on(block.delta(text))

    def _pass_on(self, event: bytes) -> None:
        if self.tape is not None:
            self.tape.note_event(event)
        for reader in self._readers:
            if reader.flows and not self._held:
                reader.send(self.seq, event)
            else:
                reader.put(self.seq, event)

    def release(self, seq: int) -> None:
        """Send a held event and what waits behind it; other seqs have no effect."""
        if seq in self._held:
            self._held.remove(seq)
            self._catch_up_all()

    def release_all(self) -> None:
        self._held.clear()
        self._catch_up_all()

    def cut(self) -> None:
        self.is_cut = True
        self._wake_readers()

    async def follow(self, last_seq: int, outlet: MessageSink) -> Followed:
        """Send everything after `last_seq` until the end or a cut.

        Raises:
            OutOfRange: `last_seq` is beyond what was sent.
            Overloaded: The feed is cut, with nothing to send.
        """
        if last_seq > self.seq:
            raise OutOfRange(f"lastSeq {last_seq} is beyond the run's last event {self.seq}", lastSeq=self.seq)
        reader = _Reader(outlet, last_seq)
        self._readers[reader] = None
        try:
            while True:
                self._catch_up(reader)
                if not reader.is_full and (self.is_cut or (self.ended and reader.flows)):
                    if self.is_cut and not (reader.sent or self.is_parked):
                        # An empty stream would say that the run has nothing more to tell.
                        raise Overloaded("the run goes on in another process; attach again", retry_after_s=1.0)
                    return Followed(reader.sent, reader.seq)
                await reader.woken.wait()
                reader.woken.clear()
                if reader.is_full:
                    await outlet.wait_until_drained()
                    reader.is_full = False
        finally:
            self._readers.pop(reader, None)

    def _catch_up_all(self) -> None:
        for reader in self._readers:
            self._catch_up(reader)
        self._wake_readers()

    def _catch_up(self, reader: _Reader) -> None:
        if reader.is_full:
            return
        if reader.is_behind:
            reader.is_behind = False
            reader.queue.extend((event.seq, event.SerializeToString()) for event in self.since(reader.seq))
        first_held = self._held[0] if self._held else math.inf
        sent = 0
        for seq, event in reader.queue:
            if seq >= first_held or reader.is_full:
                break
            reader.send(seq, event)
            sent += 1
        del reader.queue[:sent]
        reader.flows = not (reader.queue or reader.is_full)

    def _wake_readers(self) -> None:
        for reader in self._readers:
            reader.woken.set()
