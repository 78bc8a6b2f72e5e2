"""A run's events, folded so that any reader can catch up, in memory the size of the text."""

from __future__ import annotations

from collections.abc import Iterable

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
        """Return events in order of seq.

        An open block begins at the later of its own seq and `last_seq`: a reader that leaves in between resumes there.
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
