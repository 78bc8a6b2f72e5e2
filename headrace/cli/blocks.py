"""From events to what is new for a reader.

After a break, attaching gives blocks again: an open one with all its text so far, a closed one as a snapshot. What
was shown before is not shown twice; only the rest is passed on to the view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headrace.cli.events import Event
from headrace.cli.lanes import Lanes
from headrace.cli.sentences import Sentences
from headrace.cli.views import View

Show: TypeAlias = Callable[[str, str], None]

TERMINAL = frozenset({"run.complete", "run.cancel", "run.error"})


class Blocks:
    """Shows one run, or one chat's history, in one view. Keeps the texts it has shown: a run's output is bounded."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._shown: dict[str, str] = {}
        """Text of each block that the view has."""
        self._repeated: dict[str, str] = {}
        """Of blocks that have begun again, the part that is still to be repeated."""
        self._speaking: dict[str, tuple[str, str]] = {}
        """Whose they are, sub-agent and task, of the open blocks of those."""
        self._rest: dict[str, str] = {}
        """What is left to show of such blocks: the beginning of a line."""
        self._lanes = Lanes()
        self._sentences = Sentences()
        self._called: set[str] = set()
        self._answered: set[str] = set()

    def show(self, event: Event) -> None:
        """Pass on what is new in `event`."""
        kind, _, step = event.type.partition(".")
        lane = self._lanes.of(event)
        self._view.enter(lane)
        if event.type in TERMINAL:
            self._view.ended(event)
        elif kind in ("content", "reasoning"):
            show = self._view.reasoning if kind == "reasoning" else self._view.content
            self._block(step, event.content_id or event.reasoning_id, event, show)
        elif kind in ("tool", "action"):
            self._call(step, event.tool_id or event.action_id, event)
        else:
            if event.type == "attempt.reset":
                self._drop(event.scope)
            for text in self._sentences.told(event):
                self._view.notice(text)

    def _block(self, step: str, block_id: str, event: Event, show: Show) -> None:
        if step in ("start", "snapshot"):
            self._begin(block_id)
        if event.subagent_id or event.task_id:
            show = self._aside(step, block_id, event.scope, show)
        if step in ("end", "snapshot") and (rest := self._rest.pop(block_id, "")):
            show(block_id, rest)
        if step in ("delta", "snapshot"):
            self._append(block_id, event.delta or event.text, show)

    def _drop(self, scope: tuple[str, str]) -> None:
        """Wait no longer for the end of what a task or a sub-agent says again; what was shown of it stays."""
        for block_id in [block_id for block_id, whose in self._speaking.items() if whose == scope]:
            del self._speaking[block_id]
            self._rest.pop(block_id, None)

    def _aside(self, step: str, block_id: str, scope: tuple[str, str], show: Show) -> Show:
        """How to show a block of a task or a sub-agent: by whole lines while others speak too, whose words would
        stand between.
        """
        if step in ("end", "snapshot"):
            self._speaking.pop(block_id, None)
            return show
        self._speaking[block_id] = scope
        if len(self._speaking) == 1 and block_id not in self._rest:
            return show
        return lambda block_id, text: self._by_lines(block_id, text, show)

    def _by_lines(self, block_id: str, text: str, show: Show) -> None:
        lines, end, rest = (self._rest.get(block_id, "") + text).rpartition("\n")
        self._rest[block_id] = rest
        if end:
            show(block_id, lines + end)

    def _begin(self, block_id: str) -> None:
        self._repeated[block_id] = self._shown.get(block_id, "")
        self._shown[block_id] = ""

    def _append(self, block_id: str, text: str, show: Show) -> None:
        self._shown[block_id] = self._shown.get(block_id, "") + text
        repeated = self._repeated.pop(block_id, "")
        if not text.startswith(repeated):
            self._view.notice("this part begins anew")
            repeated = ""
        if new := text[len(repeated) :]:
            show(block_id, new)

    def _call(self, step: str, tool_id: str, event: Event) -> None:
        if step in ("start", "snapshot") and tool_id not in self._called:
            self._called.add(tool_id)
            self._view.tool_started(tool_id, event.tool_name or event.action_name or "tool")
        if step in ("start", "snapshot"):
            self._begin(tool_id)
        if step == "args":
            self._append(tool_id, event.delta, self._view.tool_arguments)
        elif step == "snapshot":
            self._append(tool_id, bytes(event.arguments).decode(), self._view.tool_arguments)
        elif step == "output":
            self._view.tool_output(tool_id, event.delta)
        elif step == "result" and tool_id not in self._answered:
            self._answered.add(tool_id)
            self._view.tool_result(tool_id, event.result, event.ok)
        if step in ("end", "snapshot"):
            self._view.tool_ended(tool_id)
