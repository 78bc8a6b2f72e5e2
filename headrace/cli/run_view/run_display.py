"""Passes the new parts of a run's events to a view.

After a reconnect the server repeats blocks from their start; text that the view already has is not shown again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from headrace.cli.run_view.notices import Notices
from headrace.cli.run_view.scopes import ScopeLabels
from headrace.cli.run_view.view import View
from headrace.runs.fold import TERMINAL, Fold, find_scope
from headrace.runs.parts import Scope
from headrace.v1 import agent_pb2

PLANNER = "plan"
"""Stage with text that is not part of an answer."""

Write: TypeAlias = Callable[[str, str], None]
"""Writes a piece of a block's text, given the block's id."""


class RunDisplay:
    """Displays one run, or a chat's history, in one view."""

    def __init__(self, view: View) -> None:
        self.state = Fold()
        self._view = view
        self._shown: dict[str, str] = {}
        """Text of each block that the view has."""
        self._repeated: dict[str, str] = {}
        """Earlier text of blocks that started again."""
        self._open_scopes: dict[str, Scope] = {}
        """Open blocks of tasks and sub-agents, by id."""
        self._planners_blocks: set[str] = set()
        self._line_starts: dict[str, str] = {}
        """Incomplete last line of blocks that are shown by lines."""
        self._labels = ScopeLabels()
        self._notices = Notices()
        self._opened_calls: set[str] = set()
        self._finished_calls: set[str] = set()

    def show_event(self, delta: agent_pb2.AgentDelta) -> None:
        self.state.apply(delta)
        self._view.enter_scope(self._labels.find_label(delta))
        name = delta.WhichOneof("payload") or ""
        kind, _, part = name.partition("_")
        if name in TERMINAL:
            self._view.show_end(delta)
        elif kind in ("content", "reasoning"):
            self._show_text(kind, part, delta)
        elif kind in ("tool", "action"):
            self._show_call(kind, part, getattr(delta, name))
        else:
            if name == "attempt_reset":
                # Lost blocks that have not ended are dropped; their text stays on the screen.
                scope = find_scope(delta)
                for block_id in [block_id for block_id, other in self._open_scopes.items() if other == scope]:
                    del self._open_scopes[block_id]
                    self._line_starts.pop(block_id, None)
            for text in self._notices.describe_event(delta):
                self._view.show_notice(text)

    def _show_text(self, kind: str, part: str, delta: agent_pb2.AgentDelta) -> None:
        payload: Any = getattr(delta, f"{kind}_{part}")
        block_id: str = getattr(payload, f"{kind}_id")
        if part in ("start", "snapshot"):
            self._restart_block(block_id)
            if kind == "content" and payload.stage == PLANNER:
                self._planners_blocks.add(block_id)
        write = self._view.write_reasoning if kind == "reasoning" else self._view.write_content
        if block_id in self._planners_blocks:
            write = self._view.write_planning
        if (scope := find_scope(delta)) != ("", ""):
            write = self._choose_write(part, block_id, scope, write)
        if part in ("end", "snapshot") and (rest := self._line_starts.pop(block_id, "")):
            write(block_id, rest)
        if part in ("delta", "snapshot"):
            self._append(block_id, payload.delta if part == "delta" else payload.text, write)

    def _choose_write(self, part: str, block_id: str, scope: Scope, write: Write) -> Write:
        """Return how to write a block of a task or sub-agent: by whole lines while other blocks are open."""
        if part in ("end", "snapshot"):
            self._open_scopes.pop(block_id, None)
            return write
        self._open_scopes[block_id] = scope
        if len(self._open_scopes) == 1 and block_id not in self._line_starts:
            return write

        def write_lines(block_id: str, text: str) -> None:
            lines, end, rest = (self._line_starts.get(block_id, "") + text).rpartition("\n")
            self._line_starts[block_id] = rest
            if end:
                write(block_id, lines + end)

        return write_lines

    def _restart_block(self, block_id: str) -> None:
        self._repeated[block_id] = self._shown.get(block_id, "")
        self._shown[block_id] = ""

    def _append(self, block_id: str, text: str, write: Write) -> None:
        self._shown[block_id] = self._shown.get(block_id, "") + text
        repeated = self._repeated.pop(block_id, "")
        if not text.startswith(repeated):
            self._view.show_notice("this part begins anew")
            repeated = ""
        if new := text[len(repeated) :]:
            write(block_id, new)

    def _show_call(self, kind: str, part: str, payload: Any) -> None:
        call_id: str = getattr(payload, f"{kind}_id")
        if part in ("start", "snapshot"):
            if call_id not in self._opened_calls:
                self._opened_calls.add(call_id)
                self._view.open_call(call_id, getattr(payload, f"{kind}_name") or "tool")
            self._restart_block(call_id)
        if part == "args":
            self._append(call_id, payload.delta, self._view.write_arguments)
        elif part == "snapshot":
            self._append(call_id, payload.arguments, self._view.write_arguments)
        elif part == "output":
            self._view.write_output(call_id, payload.delta)
        elif part == "result" and call_id not in self._finished_calls:
            self._finished_calls.add(call_id)
            self._view.show_result(call_id, payload.result, kind == "action" or payload.ok)
        if part in ("end", "snapshot"):
            self._view.close_arguments(call_id)
