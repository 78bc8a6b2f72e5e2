"""From a run to its readers: numbering, and a bounded queue for each reader.

Publishing never waits. An event that is held, and what comes after it, reaches no reader until it is released: the
log has it first. A reader that falls too far behind loses its queue and is brought up to date from the
journal, as if it had attached again; the run and the other readers do not notice.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable

from headrace.errors import OutOfRange
from headrace.v1 import agent_pb2
from services.orchestrator.ids import now_ms
from services.orchestrator.journal import Journal

QUEUE_MAX = 4096
"""Events a reader may lag behind, about 1 MB: a minute of a fast model."""

TERMINAL = frozenset({"run_complete", "run_cancel", "run_error"})


class _Reader:
    __slots__ = ("behind", "queue", "woken")

    def __init__(self) -> None:
        self.queue: deque[agent_pb2.AgentDelta] = deque()
        self.woken: asyncio.Future[None] | None = None
        self.behind = False

    def push(self, delta: agent_pb2.AgentDelta) -> None:
        if len(self.queue) >= QUEUE_MAX:
            self.behind = True
            self.queue.clear()
        if not self.behind:
            self.queue.append(delta)
        self.wake()

    def wake(self) -> None:
        if self.woken is not None and not self.woken.done():
            self.woken.set_result(None)

    async def wait(self) -> None:
        self.woken = asyncio.get_running_loop().create_future()
        try:
            await self.woken
        finally:
            self.woken = None


class Feed:
    """The events of one live run. Published to by the run's task, read by any number of readers."""

    def __init__(self, seq: int = 0, history: Iterable[agent_pb2.AgentDelta] = ()) -> None:
        """`seq` is that of the last event; `history` is what an earlier owner has said."""
        self.seq = seq
        """Of the last event."""
        self.ended = False
        """The terminal event was published."""
        self.is_cut = False
        """The run goes on elsewhere, or later: readers are to attach again."""
        self._journal = Journal()
        self._journal.recall(history)
        self._readers: set[_Reader] = set()
        self._held: set[int] = set()
        """Seqs of events that are on their way to the log."""

    @property
    def readers(self) -> int:
        """How many read this feed now."""
        return len(self._readers)

    def since(self, last_seq: int) -> list[agent_pb2.AgentDelta]:
        """What a reader that has everything up to `last_seq` needs now."""
        return self._journal.since(last_seq)

    def publish(self, kind: str, delta: agent_pb2.AgentDelta, *, held: bool = False) -> int:
        """Number `delta`, whose payload is `kind`, and pass it on, when `held` only once it is released. Its seq."""
        self.seq += 1
        if held:
            self._held.add(self.seq)
        delta.seq = self.seq
        delta.timestamp = now_ms()
        self._journal.note(kind, delta)
        if kind in TERMINAL:
            self.ended = True
        for reader in self._readers:
            reader.push(delta)
        return self.seq

    def release(self, seq: int) -> None:
        """Let readers have the held event `seq`, and what waits behind it; without effect on one that is not held."""
        if seq in self._held:
            self._held.remove(seq)
            self._wake()

    def release_all(self) -> None:
        """Let readers have everything: the log has it, or never will."""
        self._held.clear()
        self._wake()

    def cut(self) -> None:
        """End the readers' streams behind what the log has, without a terminal event."""
        self.is_cut = True
        self._wake()

    async def read(self, last_seq: int) -> AsyncGenerator[agent_pb2.AgentDelta]:
        """Everything after `last_seq`, to the terminal event, or to where the feed is cut.

        Raises:
            OutOfRange: `last_seq` is beyond what the run has sent.
        """
        if last_seq > self.seq:
            raise OutOfRange(f"lastSeq {last_seq} is beyond the run's last event {self.seq}", lastSeq=self.seq)
        reader = _Reader()
        self._readers.add(reader)
        try:
            reader.queue.extend(self.since(last_seq))
            while True:
                while reader.queue and not (self._held and reader.queue[0].seq >= min(self._held)):
                    delta = reader.queue.popleft()
                    last_seq = delta.seq
                    yield delta
                if reader.behind:
                    reader.behind = False
                    reader.queue.extend(self.since(last_seq))
                elif self.is_cut or (self.ended and not reader.queue):
                    return
                else:
                    await reader.wait()
        finally:
            self._readers.discard(reader)

    def _wake(self) -> None:
        for reader in self._readers:
            reader.wake()
