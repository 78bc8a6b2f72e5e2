"""Translates the changes of a run to a view.

After a reconnect the server repeats blocks from their start; text that the view already has is not shown again.
"""

from __future__ import annotations

from headrace.cli.run_view.notices import Notices
from headrace.cli.run_view.scopes import ScopeLabels
from headrace.cli.run_view.view import View
from headrace.runs.fold import Fold, find_scope
from headrace.runs.parts import (
    RUN,
    Block,
    BlockBegun,
    BlockEnded,
    BlocksLost,
    CallAnswered,
    Change,
    Changes,
    RunEnded,
    TextAdded,
)
from headrace.v1 import agent_pb2

PLANNER = "plan"
"""Stage with text that is not part of an answer."""


class RunDisplay:
    """Displays one run, or a chat's history, in one view."""

    def __init__(self, view: View) -> None:
        self.state = Fold()
        self._view = view
        self._blocks: dict[str, Block] = {}
        """Blocks that the view has, by id."""
        self._repeated: dict[str, str] = {}
        """Earlier text of blocks that began again."""
        self._open: dict[str, Block] = {}
        """Open texts of tasks and sub-agents."""
        self._line_starts: dict[str, str] = {}
        """Incomplete last lines of texts that are shown by lines."""
        self._planning: set[str] = set()
        """Ids of a planner's texts."""
        self._answered: set[str] = set()
        """Ids of calls whose results the view has."""
        self._labels = ScopeLabels()
        self._notices = Notices()

    def show_event(self, delta: agent_pb2.AgentDelta) -> Changes:
        """Show an event, and return its changes."""
        changes = self.state.apply(delta)
        self._planning |= {
            text.content_id for text in (delta.content_start, delta.content_snapshot) if text.stage == PLANNER
        }
        self._view.enter_scope(self._labels.find_label(self.state, find_scope(delta)))
        for change in changes:
            self._show_change(change)
        if delta.HasField("tool_output"):
            self._view.write_output(delta.tool_output.tool_id, delta.tool_output.delta)
        for text in self._notices.describe_event(delta, self.state.run_id):
            self._view.show_notice(text)
        return changes

    def _show_change(self, change: Change) -> None:
        match change:
            case BlockBegun(block=block):
                self._begin(block)
            case TextAdded(block=block, text=text):
                self._add(block, text)
            case BlockEnded(block=block):
                self._open.pop(block.id, None)
                if block.is_call:
                    self._view.close_arguments(block.id)
                elif rest := self._line_starts.pop(block.id, ""):
                    self._write(block, rest)
            case CallAnswered(block=block) if block.id not in self._answered:
                self._answered.add(block.id)
                self._view.show_result(block.id, block.result or "", block.ok)
            case BlocksLost(scope=scope):
                # Their text stays on the screen.
                for block_id in [block.id for block in self._open.values() if block.scope == scope]:
                    del self._open[block_id]
                    self._line_starts.pop(block_id, None)
            case RunEnded(end=end):
                self._view.show_end(end)
            case _:
                pass

    def _begin(self, block: Block) -> None:
        if earlier := self._blocks.get(block.id):
            self._repeated.setdefault(block.id, earlier.text)
        elif block.is_call:
            self._view.open_call(block.id, block.name or "tool")
        self._blocks[block.id] = block
        if block.scope != RUN and not block.is_call:
            self._open[block.id] = block

    def _add(self, block: Block, text: str) -> None:
        repeated = self._repeated.pop(block.id, "")
        if not text.startswith(repeated):
            self._view.show_notice("this part begins anew")
            repeated = ""
        text = text[len(repeated) :]
        if block.id in self._open and (len(self._open) > 1 or block.id in self._line_starts):
            # Several write at a time: each is shown by whole lines.
            lines, end, rest = (self._line_starts.get(block.id, "") + text).rpartition("\n")
            self._line_starts[block.id], text = rest, lines + end
        if text:
            self._write(block, text)

    def _write(self, block: Block, text: str) -> None:
        if block.is_call:
            self._view.write_arguments(block.id, text)
        elif block.id in self._planning:
            self._view.write_planning(block.id, text)
        elif block.kind == "reasoning":
            self._view.write_reasoning(block.id, text)
        else:
            self._view.write_content(block.id, text)
