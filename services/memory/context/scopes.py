"""The lines of a run that one of its contexts sees, and the compactions after which the context begins.

A context is the run's own (no id), a sub-agent's (`subagent-<8 hex>`), or a plan task's (`task-<taskId>`, within a
sub-agent `subagent-<8 hex>.task-<taskId>`). A sub-agent begins empty; a task begins with a copy of its plan's context
at that moment, so that parallel tasks do not see each other.

People may edit a summary, and pin messages after it. Those lines belong to no run and take effect with the next
request.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from sys import maxsize

from services.memory.context.pairing import SUMMARY, MessageGroup, PairedMessage, Position, make_text_message
from services.memory.log.lines import CompactBoundary, CompactSummary, Line, Pin, SummaryEdit

TASK = "task-"
SEPARATOR = "."


@dataclass(frozen=True, slots=True)
class ContextScope:
    """A context, and the one it was copied from."""

    context_id: str | None
    base: str | None = None
    """The plan's context; None if that is the run's own."""
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
    """Return the sub-agent that a context belongs to; for a task of the run itself, the task's own id."""
    return context_id.partition(SEPARATOR)[0]


HEADING = "Pinned by the user, word for word:"


@dataclass(frozen=True, slots=True)
class SummaryChanges:
    edit: SummaryEdit | None = None
    pins: tuple[Pin, ...] = ()
    """Pinned messages that the summary replaces, in the order of the log."""

    @property
    def version(self) -> str:
        """A value that differs if the text does."""
        return " ".join(str(line.n) for line in (*([] if self.edit is None else [self.edit]), *self.pins))

    def choose_text(self, written: str) -> str:
        return written if self.edit is None else self.edit.content

    def apply_to(self, written: str) -> str:
        return "\n\n".join([self.choose_text(written), *([format_pins(self.pins)] if self.pins else [])])


NO_CHANGES = SummaryChanges()


def format_pins(pins: Sequence[Pin]) -> str:
    return "\n\n".join([HEADING, *(pin.text for pin in pins)])


def find_changes(lines: Iterable[Line], summary_uuid: str, before_n: int) -> SummaryChanges:
    """Find people's changes to a summary that replaces the lines before `before_n`: its last edit, and their pins.

    `lines` are the chat's lines that belong to no run.
    """
    lines = list(lines)
    edits = [line for line in lines if isinstance(line, SummaryEdit) and line.parent_uuid == summary_uuid]
    pins = tuple(pin for pin in list_pins(lines) if pin.target < before_n)
    return SummaryChanges(edits[-1] if edits else None, pins)


def list_pins(lines: Iterable[Line]) -> list[Pin]:
    """List the pins, in the order of their messages."""
    pins: dict[int, Pin] = {}
    for line in lines:
        if isinstance(line, Pin):
            pins[line.target] = line
    return sorted((pin for pin in pins.values() if pin.text), key=lambda pin: pin.target)


@dataclass(frozen=True, slots=True)
class AppliedCompaction:
    boundary: CompactBoundary
    summary: CompactSummary
    changes: SummaryChanges = NO_CHANGES
    """People's changes of the summary."""

    @property
    def start(self) -> Position:
        """The first message kept after the summary."""
        return Position(self.summary.retained_from.n, self.summary.retained_from.message)

    @property
    def text(self) -> str:
        """The summary's latest text, as written or edited."""
        return self.changes.choose_text(self.summary.content)

    @property
    def group(self) -> MessageGroup:
        at, text = Position(self.summary.n, 0), self.changes.apply_to(self.summary.content)
        if text == self.summary.content:
            paired = PairedMessage(make_text_message("user", text), at, form=SUMMARY, tokens=[self.summary.tokens])
        else:
            # Counted by its own text: the form tells the versions apart.
            paired = PairedMessage(make_text_message("user", text), at, form=f"{SUMMARY} {self.changes.version}")
        return MessageGroup(paired)

    def retains(self, group: MessageGroup) -> bool:
        return group.head.at is not None and group.head.at.n < self.summary.n


def list_compactions(runs: Iterable[Sequence[Line]], scope: ContextScope) -> list[AppliedCompaction]:
    """List the compactions of a context by how far they reach; a boundary without summary is ignored.

    One made between runs may end after a later run's own.
    """
    boundaries: dict[str, CompactBoundary] = {}
    found: list[AppliedCompaction] = []
    for lines in runs:
        for line in lines:
            if isinstance(line, CompactBoundary) and scope.includes(line.context_id, line.n):
                boundaries[line.uuid] = line
            elif isinstance(line, CompactSummary) and line.parent_uuid in boundaries:
                found.append(AppliedCompaction(boundaries[line.parent_uuid], line))
    return sorted(found, key=lambda compaction: (compaction.start, compaction.summary.n))
