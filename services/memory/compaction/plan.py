"""What a compaction would replace and what it would keep, and whether it is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.memory.context.context_source import kept
from services.memory.log.lines import CompactBoundary

if TYPE_CHECKING:
    from services.memory.context.context_source import Story
    from services.memory.context.message_pairing import Unit
    from services.memory.context.token_counter import Counter

DUE_RATIO = 0.8
"""Of the limit: from there on a context is compacted before the next turn."""

RETAINED_RATIO = 0.2
"""Of the messages: what stays beside a summary."""

FALLBACK_RATIO = 0.3
"""The same where the summary failed."""

GAIN_RATIO = 0.1
"""Of the tokens: a compaction that gains less is not worth a model call, or its repetition."""

FAILURES_MAX = 3
"""In a row, in one run: then no more is tried in it."""

SUMMARY = "summary"
FALLBACK = "fallback"
"""Strategies, as the boundary names them."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A cut through what was said since the last compaction."""

    units: Sequence[Unit]
    """All of it, a former summary left out."""
    start: int
    """The first unit that stays."""

    @property
    def kept(self) -> list[Unit]:
        """What stays beside the summary: behind the user message that is being answered."""
        return kept(self.units, self.start)

    @property
    def replaced(self) -> list[Unit]:
        """What only the summary tells from now on."""
        kept = self.kept
        return [unit for unit in self.units[: self.start] if unit is not kept[0]] if kept else []


def planned(units: Sequence[Unit], ratio: float, counter: Counter, room: int, *, first: int = 0) -> Plan:
    """The cut that keeps the last `ratio` of the messages, whole units, the last one always.

    From there the oldest go until what is kept has place in `room` tokens, not scaled; nothing before index `first`
    is kept: the window does not show it.
    """
    counts = [len(unit.all()) for unit in units]
    wanted, start, found = sum(counts) * ratio, len(units), 0
    while start > 0 and found < wanted:
        start -= 1
        found += counts[start]
    start = max(start, min(first, len(units) - 1))
    cost = counter.units(units[start:])
    while start < len(units) - 1 and cost > room:
        cost -= counter.unit(units[start])
        start += 1
    return Plan(units, max(start, 0))


def is_due(story: Story, units: Sequence[Unit], counter: Counter, tokens: int, tokens_max: int) -> bool:
    """Whether a context of `tokens` is to be compacted before its next turn. `units` are shown beside the summary."""
    if tokens < DUE_RATIO * tokens_max or is_broken(story):
        return False
    if story.compacted is not None:
        last = story.compacted.boundary.compact_metadata
        gained = last.pre_tokens - last.post_tokens >= GAIN_RATIO * last.pre_tokens
        if not gained and tokens < (1 + GAIN_RATIO) * last.post_tokens:
            return False
    plan = planned(units, RETAINED_RATIO, counter, tokens_max)
    return counter.scaled(counter.units(plan.replaced)) >= GAIN_RATIO * tokens


def is_broken(story: Story) -> bool:
    """Whether this run's last compactions have all failed to get a summary."""
    strategies = [
        line.compact_metadata.strategy
        for line in story.lines
        if isinstance(line, CompactBoundary) and line.context_id == story.context_id
    ]
    return strategies[-FAILURES_MAX:] == [FALLBACK] * FAILURES_MAX
