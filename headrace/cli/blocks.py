"""From events to what is new for a reader.

After a break, attaching gives blocks again: an open one with all its text so far, a closed one as a snapshot. What
was shown before is not shown twice; only the rest is passed on to the view.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from headrace.cli.events import Event
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
        self._called: set[str] = set()
        self._answered: set[str] = set()

    def show(self, event: Event) -> None:
        """Pass on what is new in `event`."""
        kind, _, step = event.type.partition(".")
        if event.type in TERMINAL:
            self._view.ended(event)
        elif kind in ("content", "reasoning"):
            is_aside = kind == "reasoning" or event.subagent_id
            show = self._view.reasoning if is_aside else self._view.content
            self._block(step, event.content_id or event.reasoning_id, event, show)
        elif kind in ("tool", "action"):
            self._call(step, event.tool_id or event.action_id, event)
        else:
            self._other(event)

    def _block(self, step: str, block_id: str, event: Event, show: Show) -> None:
        if step in ("start", "snapshot"):
            self._begin(block_id)
        if step in ("delta", "snapshot"):
            self._append(block_id, event.delta or event.text, show)

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

    def _other(self, event: Event) -> None:
        match event.type:
            case "run.notice":
                self._view.notice(event.message)
            case "attempt.reset":
                self._view.notice("the last part was lost and is made again")
            case "plan.create" | "plan.update":
                self._view.notice("plan: " + "; ".join(f"{task.description} [{task.status}]" for task in event.plan))
            case "task.start":
                self._view.notice(f"task: {event.task_name or event.task_id}")
            case "subagent.start":
                self._view.notice(f"{event.agent_key}: {event.goal}")
            case _:
                pass
