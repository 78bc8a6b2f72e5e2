"""What there is to tell a model in one context of a run: all that was said since the last compaction that applies.

Runs stand in the order of their queries, and a run sees none that was asked after it: neither its lines nor what it
compacted. Which lines of its run a sub-agent or a plan task is told, scopes.py says.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

from headrace.errors import NotFound
from services.memory.context.message_pairing import Dialogue, Position, Said, Unit, text_message
from services.memory.context.scopes import Scope, scope_of
from services.memory.log.chat_info import ASKED
from services.memory.log.lines import CompactBoundary, CompactSummary, Line, Query, Step

if TYPE_CHECKING:
    from collections.abc import Iterator

COMPACT = "/compact"
"""A message that asks for a compaction and is none to a model."""

UNTOLD = frozenset({"compact", "verify"})
"""Stages that are none of the conversation: a compaction, and a candidate answer that was corrected."""

UNTOLD_LATER = UNTOLD | {"plan", "execute"}
"""Of an earlier run with a plan the query and the final answer are told."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A compaction that applies."""

    boundary: CompactBoundary
    summary: CompactSummary

    @property
    def start(self) -> Position:
        """The first message that is told beside the summary."""
        return Position(self.summary.retained_from.n, self.summary.retained_from.message)

    @property
    def unit(self) -> Unit:
        """The summary as a message."""
        at, tokens = Position(self.summary.n, 0), [self.summary.tokens]
        return Unit(Said(text_message("user", self.summary.content), at, tokens=tokens))

    def retains(self, unit: Unit) -> bool:
        """Whether `unit` was there and was kept."""
        return unit.said.at is not None and unit.said.at.n < self.summary.n


@dataclass(frozen=True, slots=True)
class Story:
    """A context, as far as it is told."""

    run_id: str
    scope: Scope
    lines: Sequence[Line]
    """Of the run, whatever their context."""
    before: Sequence[Sequence[Line]]
    """Of each earlier run; the first may have to be told in part."""
    compacted: Compacted | None

    @property
    def context_id(self) -> str | None:
        """None: the run's own context."""
        return self.scope.context_id

    def own(self) -> list[Unit]:
        """What was said in the run itself, with its reasoning."""
        return self._told(self.lines, self.scope, is_own=True)

    def earlier(self) -> Iterator[list[Unit]]:
        """What was said in each earlier run, the last first."""
        return (self._told(lines, Scope(None), is_own=False) for lines in reversed(self.before))

    def _told(self, lines: Sequence[Line], scope: Scope, *, is_own: bool) -> list[Unit]:
        found = units(lines, scope, is_own=is_own)
        if self.compacted is None or not any(line.n == self.compacted.start.n for line in lines):
            return found
        return kept(found, next((i for i, unit in enumerate(found) if place(unit) >= self.compacted.start), len(found)))


def story(runs: Mapping[str, Sequence[Line]], run_id: str, context_id: str | None) -> Story:
    """The context of a run. `runs` are a chat's lines by run, in the order of their queries; lines of no run are under
    the empty id.

    Raises:
        NotFound: The chat has no such run.
    """
    if run_id not in runs:
        raise NotFound(f"run {run_id} does not exist in the chat", runId=run_id)
    own = runs[run_id]
    scope = scope_of(context_id, own)
    # A sub-agent begins with what its first step holds.
    ids = [key for key in takewhile(lambda key: key != run_id, runs) if key] if scope.is_main else []
    before = [runs[key] for key in ids]
    compacted = last_compaction([*before, own], scope)
    if compacted is not None:
        n = compacted.start.n
        first = next((i for i, lines in enumerate(before) if any(line.n == n for line in lines)), len(before))
        before = before[first:]
    return Story(run_id, scope, own, before, compacted)


def last_compaction(runs: Iterable[Sequence[Line]], scope: Scope) -> Compacted | None:
    """The last compaction of a context. A boundary without its summary is none."""
    boundaries: dict[str, CompactBoundary] = {}
    found: Compacted | None = None
    for lines in runs:
        for line in lines:
            if isinstance(line, CompactBoundary) and scope.has(line.context_id, line.n):
                boundaries[line.uuid] = line
            elif isinstance(line, CompactSummary) and line.parent_uuid in boundaries:
                is_later = found is None or line.n > found.summary.n
                found = Compacted(boundaries[line.parent_uuid], line) if is_later else found
    return found


def units(lines: Iterable[Line], scope: Scope, *, is_own: bool) -> list[Unit]:
    """What was said in one context of one run, the one that is asked for (`is_own`) or an earlier one."""
    dialogue = Dialogue(with_reasoning=is_own)
    untold = UNTOLD if is_own else UNTOLD_LATER
    for line in lines:
        if isinstance(line, Query) and scope.has(None, line.n):
            message = ASKED.decode(line.query).message
            if message.split(maxsplit=1)[:1] != [COMPACT]:
                dialogue.ask(message, Position(line.n, 0), line.tokens)
        elif isinstance(line, Step) and line.stage not in untold and scope.has(line.context_id, line.n):
            dialogue.add(line.messages, line.n)
    return dialogue.units()


def kept(units: Sequence[Unit], start: int) -> list[Unit]:
    """What a compaction keeps of a run: its units from `start`, behind the user message that they answer."""
    if start < len(units) and units[start].role == "user":
        return list(units[start:])
    asked = next((unit for unit in reversed(units[:start]) if unit.role == "user"), None)
    return [*([] if asked is None else [asked]), *units[start:]]


def place(unit: Unit) -> Position:
    """Where a unit of a dialogue begins."""
    assert unit.said.at is not None, "all that was said is in the log"
    return unit.said.at
