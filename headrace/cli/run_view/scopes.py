"""Labels for a run's scopes: its plan tasks and sub-agents."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.runs.fold import find_scope
from headrace.runs.parts import Scope
from headrace.v1 import agent_pb2

LABEL_CHARS_MAX = 40


@dataclass(frozen=True, slots=True)
class ScopeLabel:
    depth: int = 0
    """Levels below the run itself."""
    text: str = ""
    """Text of the label; empty for the run itself."""


RUN = ScopeLabel()


class ScopeLabels:
    """The labels of one run's scopes, collected from its events."""

    def __init__(self) -> None:
        self._labels: dict[Scope, ScopeLabel] = {}

    def find_label(self, delta: agent_pb2.AgentDelta) -> ScopeLabel:
        """Return the label of the scope of `delta`, registering a new scope."""
        scope = find_scope(delta)
        match delta.WhichOneof("payload"):
            case "task_start":
                start = delta.task_start
                depth = self._get_label((delta.subagent_id, "")).depth + 1
                self._labels[scope] = ScopeLabel(depth, _shorten(start.task_name or start.description or start.task_id))
            case "subagent_start":
                begun = delta.subagent_start
                caller = (begun.parent_id, "")
                parent = self._get_label(caller if caller in self._labels else ("", delta.task_id))
                name = begun.agent_key or begun.subagent_id
                self._labels[begun.subagent_id, ""] = ScopeLabel(parent.depth + 1, _shorten(f"{name}: {begun.goal}"))
            case _:
                pass
        return self._get_label(scope)

    def _get_label(self, scope: Scope) -> ScopeLabel:
        if scope == ("", ""):
            return RUN
        subagent_id, task_id = scope
        return self._labels.get(scope) or ScopeLabel(1, _shorten(task_id or subagent_id))


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LABEL_CHARS_MAX else f"{line[: LABEL_CHARS_MAX - 1]}…"
