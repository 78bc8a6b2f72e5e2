"""A run's events, folded so that any reader can catch up, in memory the size of the text."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from headrace.v1 import agent_pb2
from services.orchestrator.run.events.blocks import ActionBlock, SingleEvent, TextBlock, ToolBlock

Delta = agent_pb2.AgentDelta


class Journal:
    def __init__(self) -> None:
        self._entries: list[TextBlock | ToolBlock | ActionBlock | SingleEvent] = []
        self._open: dict[str, TextBlock | ToolBlock | ActionBlock] = {}
        """Open blocks by id; a tool's stays until its result."""

    def note(self, kind: str, delta: Delta) -> None:
        """Fold an event; pieces of text go to their block directly."""
        note = self._NOTES.get(kind)
        if note is None:
            self._entries.append(SingleEvent(delta))
        else:
            note(self, delta)

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
                case "tool_result" if event.tool_result.tool_id in self._open:
                    self._tool_result(event)
                case "action_result" if event.action_result.action_id in self._open:
                    self._action_result(event)
                case _:
                    self._entries.append(SingleEvent(event))

    def since(self, last_seq: int) -> list[Delta]:
        """Return events in order of seq.

        An open block begins at the later of its own seq and `last_seq`: a reader that leaves in between resumes there.
        """
        events = [delta for entry in self._entries for delta in entry.since(last_seq)]
        return sorted(events, key=lambda delta: delta.seq)

    def _open_block(self, block_id: str, entry: TextBlock | ToolBlock | ActionBlock) -> None:
        self._open[block_id] = entry
        self._entries.append(entry)

    def _content_start(self, delta: Delta) -> None:
        self._open_block(delta.content_start.content_id, TextBlock("content", delta))

    def _reasoning_start(self, delta: Delta) -> None:
        self._open_block(delta.reasoning_start.reasoning_id, TextBlock("reasoning", delta))

    def _content_end(self, delta: Delta) -> None:
        self._close_text(delta.content_end.content_id, delta)

    def _reasoning_end(self, delta: Delta) -> None:
        self._close_text(delta.reasoning_end.reasoning_id, delta)

    def _close_text(self, block_id: str, delta: Delta) -> None:
        self.open_text(block_id).close(delta)
        del self._open[block_id]

    def _tool_start(self, delta: Delta) -> None:
        self._open_block(delta.tool_start.tool_id, ToolBlock(delta))

    def _update_tool(self, tool_id: str, delta: Delta) -> ToolBlock:
        entry = self._open[tool_id]
        assert isinstance(entry, ToolBlock), "tool events follow their tool.start"
        entry.last = delta
        return entry

    def _tool_args(self, delta: Delta) -> None:
        entry = self._update_tool(delta.tool_args.tool_id, delta)
        entry.args.write(delta.tool_args.delta)
        entry.args_last = delta

    def _tool_end(self, delta: Delta) -> None:
        self._update_tool(delta.tool_end.tool_id, delta).end = delta

    def _tool_output(self, delta: Delta) -> None:
        self._update_tool(delta.tool_output.tool_id, delta).output(delta)

    def _tool_result(self, delta: Delta) -> None:
        self._update_tool(delta.tool_result.tool_id, delta).finish(delta)
        del self._open[delta.tool_result.tool_id]

    def _action_start(self, delta: Delta) -> None:
        self._open_block(delta.action_start.action_id, ActionBlock(delta))

    def _update_action(self, action_id: str, delta: Delta) -> ActionBlock:
        entry = self._open[action_id]
        assert isinstance(entry, ActionBlock), "action events follow their action.start"
        entry.last = delta
        return entry

    def _action_args(self, delta: Delta) -> None:
        entry = self._update_action(delta.action_args.action_id, delta)
        entry.args.write(delta.action_args.delta)
        entry.args_last = delta

    def _action_end(self, delta: Delta) -> None:
        self._update_action(delta.action_end.action_id, delta).end = delta

    def _action_param(self, delta: Delta) -> None:
        self._update_action(delta.action_param.action_id, delta).param = delta

    def _action_result(self, delta: Delta) -> None:
        self._update_action(delta.action_result.action_id, delta).result = delta
        del self._open[delta.action_result.action_id]

    _NOTES: ClassVar[dict[str, Callable[[Journal, Delta], None]]] = {
        "content_start": _content_start,
        "reasoning_start": _reasoning_start,
        "content_end": _content_end,
        "reasoning_end": _reasoning_end,
        "tool_start": _tool_start,
        "tool_args": _tool_args,
        "tool_end": _tool_end,
        "tool_output": _tool_output,
        "tool_result": _tool_result,
        "action_start": _action_start,
        "action_args": _action_args,
        "action_end": _action_end,
        "action_param": _action_param,
        "action_result": _action_result,
    }
