"""Labels for a run's scopes: its plan tasks and sub-agents."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.runs import parts
from headrace.runs.fold import Fold

LABEL_CHARS_MAX = 40


@dataclass(frozen=True, slots=True)
class ScopeLabel:
    depth: int = 0
    """Levels below the run itself."""
    text: str = ""
    """Text of the label; empty for the run itself."""


RUN = ScopeLabel()


class ScopeLabels:
    """The labels of one run's scopes."""

    def __init__(self) -> None:
        self._labels: dict[parts.Scope, ScopeLabel] = {parts.RUN: RUN}

    def find_label(self, state: Fold, scope: parts.Scope) -> ScopeLabel:
        if label := self._labels.get(scope):
            return label
        subagent_id, task_id = scope
        if task := state.tasks.get(task_id):
            parent, text = (subagent_id, ""), task.name or task.description or task_id
        elif not task_id and (subagent := state.subagents.get(subagent_id)):
            caller = (subagent.parent_id, "")
            parent = caller if caller in self._labels else ("", subagent.task_id)
            text = f"{subagent.agent_key or subagent_id}: {subagent.goal}"
        else:
            return ScopeLabel(1, _shorten(task_id or subagent_id))
        depth = self._labels[parent].depth if parent in self._labels else 1
        label = self._labels[scope] = ScopeLabel(depth + 1, _shorten(text))
        return label


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LABEL_CHARS_MAX else f"{line[: LABEL_CHARS_MAX - 1]}…"
