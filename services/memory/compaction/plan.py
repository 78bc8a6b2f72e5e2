"""What a compaction would replace and what it would keep, and whether it is worth it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.memory.context.context_source import keep_from
from services.memory.log.lines import CompactBoundary

if TYPE_CHECKING:
    from services.memory.context.context_source import ContextSource
    from services.memory.context.message_pairing import MessageGroup
    from services.memory.context.token_counter import TokenCounter

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
class CompactionPlan:
    """A cut through what was said since the last compaction."""

    units: Sequence[MessageGroup]
    """All of it, a former summary left out."""
    start: int
    """The first unit that stays."""

    @property
    def kept(self) -> list[MessageGroup]:
        """What stays beside the summary: behind the user message that is being answered."""
        return keep_from(self.units, self.start)

    @property
    def replaced(self) -> list[MessageGroup]:
        """What only the summary tells from now on."""
        kept = self.kept
        return [unit for unit in self.units[: self.start] if unit is not kept[0]] if kept else []


def make_plan(
    units: Sequence[MessageGroup], ratio: float, counter: TokenCounter, room: int, *, first: int = 0
) -> CompactionPlan:
    """The cut that keeps the last `ratio` of the messages, whole units, the last one always.

    From there the oldest go until what is kept has place in `room` tokens, not scaled; nothing before index `first`
    is kept: the window does not show it.
    """
    counts = [len(unit.list_messages()) for unit in units]
    wanted, start, found = sum(counts) * ratio, len(units), 0
    while start > 0 and found < wanted:
        start -= 1
        found += counts[start]
    start = max(start, min(first, len(units) - 1))
    cost = counter.count_groups(units[start:])
    while start < len(units) - 1 and cost > room:
        cost -= counter.count_group(units[start])
        start += 1
    return CompactionPlan(units, max(start, 0))


def is_due(
    story: ContextSource, units: Sequence[MessageGroup], counter: TokenCounter, tokens: int, tokens_max: int
) -> bool:
    """Whether a context of `tokens` is to be compacted before its next turn. `units` are shown beside the summary."""
    if tokens < DUE_RATIO * tokens_max or is_broken(story):
        return False
    if story.compacted is not None:
        last = story.compacted.boundary.compact_metadata
        gained = last.pre_tokens - last.post_tokens >= GAIN_RATIO * last.pre_tokens
        if not gained and tokens < (1 + GAIN_RATIO) * last.post_tokens:
            return False
    plan = make_plan(units, RETAINED_RATIO, counter, tokens_max)
    return counter.to_model_tokens(counter.count_groups(plan.replaced)) >= GAIN_RATIO * tokens


def is_broken(story: ContextSource) -> bool:
    """Whether this run's last compactions have all failed to get a summary."""
    strategies = [
        line.compact_metadata.strategy
        for line in story.lines
        if isinstance(line, CompactBoundary) and line.context_id == story.context_id
    ]
    return strategies[-FAILURES_MAX:] == [FALLBACK] * FAILURES_MAX
