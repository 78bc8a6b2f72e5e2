"""Which lines of a run one of its contexts sees.

A context is the run's own (no id), a sub-agent's (`subagent-<8 hex>`), or a plan task's (`task-<taskId>`, within a
sub-agent `subagent-<8 hex>.task-<taskId>`). A sub-agent begins empty; a task begins with a copy of its plan's context
at that moment, so that parallel tasks do not see each other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from sys import maxsize

from services.memory.log.lines import Line

TASK = "task-"
SEPARATOR = "."


@dataclass(frozen=True, slots=True)
class ContextScope:
    """A context, and the one it was copied from."""

    context_id: str | None
    base: str | None = None
    """The plan's context; None for the run's own."""
    forked_at: int = 0
    """Number of the task's first line, where its view of the base ends."""

    @property
    def is_main(self) -> bool:
        return self.context_id is None or (self.base is None and self.forked_at > 0)

    def includes(self, context_id: str | None, n: int) -> bool:
        return context_id == self.context_id or (context_id == self.base and n < self.forked_at)


def find_scope(context_id: str | None, lines: Iterable[Line]) -> ContextScope:
    agent, separator, task = (context_id or "").rpartition(SEPARATOR)
    if context_id is None or not task.startswith(TASK):
        return ContextScope(context_id)
    own = (line.n for line in lines if getattr(line, "context_id", None) == context_id)
    return ContextScope(context_id, agent if separator else None, next(own, maxsize))


def get_agent_id(context_id: str) -> str:
    """Return the sub-agent that a context is part of; for a task of the run itself the task's own id."""
    return context_id.partition(SEPARATOR)[0]
