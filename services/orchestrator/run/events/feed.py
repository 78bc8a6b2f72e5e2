"""Sends events to a run's readers; publishing never waits. Any reader can catch up from the folded journal."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from headrace.errors import OutOfRange, Overloaded
from headrace.runs.fold import TERMINAL
from headrace.v1 import agent_pb2
from services.orchestrator.metrics import FIRST_DELTA
from services.orchestrator.peers.recorder import Recorder
from services.orchestrator.run.events.blocks import ActionBlock, SingleEvent, TextBlock, ToolBlock
from services.orchestrator.run.single_waiter_event import SingleWaiterEvent
from services.runtime.clock import monotonic_s, now_ms
from services.runtime.rpc.push_stream import MessageSink
from services.runtime.telemetry.spans import current_exemplar

KINDS: dict[type[Message], str] = {
    GetMessageClass(field.message_type): field.name
    for field in agent_pb2.AgentDelta.DESCRIPTOR.oneofs_by_name["payload"].fields
    if field.message_type is not None
}


Delta = agent_pb2.AgentDelta


class Journal:
    def __init__(self) -> None:
        self._entries: list[TextBlock | ToolBlock | ActionBlock | SingleEvent] = []
        self._open: dict[str, TextBlock | ToolBlock | ActionBlock] = {}
        """Open blocks by id; a tool's block stays until its result."""

    def note(self, kind: str, delta: Delta) -> None:
        """Fold an event; pieces of text go to their block directly."""
        # Pieces of arguments and output, the most frequent events here, come first.
        match kind:
            case "tool_args":
                tool = self._update_tool(delta.tool_args.tool_id, delta)
                tool.args.write(delta.tool_args.delta)
                tool.args_last = delta
            case "tool_output":
                self._update_tool(delta.tool_output.tool_id, delta).output(delta)
            case "action_args":
                action = self._update_action(delta.action_args.action_id, delta)
                action.args.write(delta.action_args.delta)
                action.args_last = delta
            case "content_start":
                self._open_block(delta.content_start.content_id, TextBlock("content", delta))
            case "content_end":
                self._close_text(delta.content_end.content_id, delta)
            case "reasoning_start":
                self._open_block(delta.reasoning_start.reasoning_id, TextBlock("reasoning", delta))
            case "reasoning_end":
                self._close_text(delta.reasoning_end.reasoning_id, delta)
            case "tool_start":
                self._open_block(delta.tool_start.tool_id, ToolBlock(delta))
            case "tool_end":
                self._update_tool(delta.tool_end.tool_id, delta).end = delta
            case "tool_result":
                self._update_tool(delta.tool_result.tool_id, delta).finish(delta)
                del self._open[delta.tool_result.tool_id]
            case "action_start":
                self._open_block(delta.action_start.action_id, ActionBlock(delta))
            case "action_end":
                self._update_action(delta.action_end.action_id, delta).end = delta
            case "action_param":
                self._update_action(delta.action_param.action_id, delta).param = delta
            case "action_result":
                self._update_action(delta.action_result.action_id, delta).result = delta
                del self._open[delta.action_result.action_id]
            case _:
                self._entries.append(SingleEvent(delta))

    def open_text(self, block_id: str) -> TextBlock:
        entry = self._open[block_id]
        assert isinstance(entry, TextBlock), "deltas and an end are of a text block that is open"
        return entry

    def recall(self, history: Iterable[Delta]) -> None:
        for event in history:
            match event.WhichOneof("payload"):
                case "tool_snapshot":
                    self._open_block(event.tool_snapshot.tool_id, ToolBlock(event))
                case "action_snapshot":
                    self._open_block(event.action_snapshot.action_id, ActionBlock(event))
                case "tool_result" as kind if event.tool_result.tool_id in self._open:
                    self.note(kind, event)
                case "action_result" as kind if event.action_result.action_id in self._open:
                    self.note(kind, event)
                case _:
                    self._entries.append(SingleEvent(event))

    def since(self, last_seq: int) -> list[Delta]:
        """Return the events after `last_seq` in order of seq.

        An open block begins at the later of its own seq and `last_seq`, so that a reader that disconnects in between
        resumes there.
        """
        events = [delta for entry in self._entries for delta in entry.since(last_seq)]
        return sorted(events, key=lambda delta: delta.seq)

    def _open_block(self, block_id: str, entry: TextBlock | ToolBlock | ActionBlock) -> None:
        self._open[block_id] = entry
        self._entries.append(entry)

    def _close_text(self, block_id: str, delta: Delta) -> None:
        self.open_text(block_id).close(delta)
        del self._open[block_id]

    def _update_tool(self, tool_id: str, delta: Delta) -> ToolBlock:
        entry = self._open[tool_id]
        assert isinstance(entry, ToolBlock), "tool events follow their tool.start"
        entry.last = delta
        return entry

    def _update_action(self, action_id: str, delta: Delta) -> ActionBlock:
        entry = self._open[action_id]
        assert isinstance(entry, ActionBlock), "action events follow their action.start"
        entry.last = delta
        return entry


QUEUE_MAX = 4096
"""Maximum queued events per reader, about 1 MB, or a minute of a fast model."""


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
        """Continue after `seq`, the last event's number, and the earlier owners' events."""
        self.seq = seq
        self.ended = False
        self.is_cut = False
        """Whether readers must attach again, because the run continues elsewhere or later."""
        self.is_parked = False
        """Whether the run was parked, in which case the stream's follower attaches its readers again."""
        self._journal = Journal()
        self._journal.recall(history)
        self._readers: dict[_Reader, None] = {}
        """Readers in the order in which they came and are served."""
        self._held: list[int] = []
        self.recorder: Recorder | None = None
        """Receives each event if the run is recorded."""
        self._began_s = 0.0 if seq else monotonic_s()
        """When the run's query came; 0: its first text is not measured, or was."""

    @property
    def readers(self) -> int:
        return len(self._readers)

    def since(self, last_seq: int) -> list[agent_pb2.AgentDelta]:
        return self._journal.since(last_seq)

    def publish(
        self, payload: Message, *, held: bool = False, subagent_id: str | None = None, task_id: str | None = None
    ) -> agent_pb2.AgentDelta:
        """Number and send an event; readers receive a `held` one only when it is released."""
        kind = KINDS[type(payload)]
        self.seq += 1
        fields: Any = {kind: payload}
        delta = agent_pb2.AgentDelta(
            seq=self.seq, timestamp=now_ms(), subagent_id=subagent_id, task_id=task_id, **fields
        )
        self._journal.note(kind, delta)
        if held:
            self._held.append(self.seq)
        if self._readers or self.recorder is not None:
            self._pass_on(delta.SerializeToString())
        if kind in TERMINAL:
            self.ended = True
            self._wake_readers()
        return delta

    def open_text(self, block_id: str) -> TextBlock:
        if self._began_s:
            FIRST_DELTA.observe(monotonic_s() - self._began_s, current_exemplar())
            self._began_s = 0.0
        return self._journal.open_text(block_id)

    def write(self, block: TextBlock, text: bytes) -> None:
        self.seq += 1
        event = block.add(text, self.seq, now_ms())
        if self.recorder is None and len(self._readers) == 1 and not self._held:
            # Nearly every run has one reader, which keeps up.
            (reader,) = self._readers
            if reader.flows:
                reader.send(self.seq, event)
                return
        self._pass_on(event)

    def _pass_on(self, event: bytes) -> None:
        if self.recorder is not None:
            self.recorder.note_event(event)
        for reader in self._readers:
            if reader.flows and not self._held:
                reader.send(self.seq, event)
            else:
                reader.put(self.seq, event)

    def release(self, seq: int) -> None:
        """Send a held event and those queued after it; other seqs have no effect."""
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
            OutOfRange: `last_seq` is beyond the last event.
            Overloaded: The feed is cut, and nothing is left to send.
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
                        raise Overloaded("the run continues in another process; attach again", retry_after_s=1.0)
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
