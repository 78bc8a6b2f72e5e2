"""Which lines of a run one of its contexts sees.

A context is the run's own (no id), a sub-agent's (`subagent-<8 hex>`), or a plan task's (`task-<taskId>`, within a
sub-agent `subagent-<8 hex>.task-<taskId>`). A sub-agent begins empty; a task begins with a copy of its plan's context
at that moment, so that parallel tasks do not see each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import maxsize
from typing import TYPE_CHECKING

from services.memory.log.lines import Line, Pin, SummaryEdit

if TYPE_CHECKING:
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


HEADING = "Pinned by the user, word for word:"


@dataclass(frozen=True, slots=True)
class SummaryChanges:
    edit: SummaryEdit | None = None
    pins: tuple[Pin, ...] = ()
    """Pinned messages that the summary stands for, in the order of the log."""

    @property
    def version(self) -> str:
        """Differs where the text does."""
        return " ".join(str(line.n) for line in (*([] if self.edit is None else [self.edit]), *self.pins))

    def choose_text(self, written: str) -> str:
        return written if self.edit is None else self.edit.content

    def apply_to(self, written: str) -> str:
        return "\n\n".join([self.choose_text(written), *([format_pins(self.pins)] if self.pins else [])])


NO_CHANGES = SummaryChanges()


def format_pins(pins: Sequence[Pin]) -> str:
    return "\n\n".join([HEADING, *(pin.text for pin in pins)])


def find_changes(lines: Iterable[Line], summary_uuid: str, before_n: int) -> SummaryChanges:
    """Find the changes of a summary that stands for the lines before `before_n`, in the lines of no run."""
    lines = list(lines)
    edits = [line for line in lines if isinstance(line, SummaryEdit) and line.parent_uuid == summary_uuid]
    pins = tuple(pin for pin in list_pins(lines) if pin.target < before_n)
    return SummaryChanges(edits[-1] if edits else None, pins)


def list_pins(lines: Iterable[Line]) -> list[Pin]:
    """List what is pinned, by the order of the messages."""
    pins: dict[int, Pin] = {}
    for line in lines:
        if isinstance(line, Pin):
            pins[line.target] = line
    return sorted((pin for pin in pins.values() if pin.text), key=lambda pin: pin.target)
