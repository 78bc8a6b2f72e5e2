"""The cut of a compaction: which messages it replaces and keeps, and whether it is worth it."""

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
"""Share of the limit from which a context is compacted before the next turn."""

RETAINED_RATIO = 0.2
"""Share of the messages that stays beside a summary."""

FALLBACK_RATIO = 0.3
"""Share of the messages that stays where the summary failed."""

GAIN_RATIO = 0.1
"""Share of the tokens that a compaction must gain to be worth a model call, or its repetition."""

FAILURES_MAX = 3
"""Failures in a row after which a run's context is not compacted automatically any more."""

SUMMARY = "summary"
FALLBACK = "fallback"
"""Strategies, as the boundary names them."""


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    """A cut through the messages since the last compaction."""

    groups: Sequence[MessageGroup]
    """All of it, a former summary left out."""
    start: int
    """The first group that stays."""

    @property
    def kept(self) -> list[MessageGroup]:
        """The messages that stay beside the summary, after the user message that they answer."""
        return keep_from(self.groups, self.start)

    @property
    def replaced(self) -> list[MessageGroup]:
        """The messages that only the summary represents from now on."""
        kept = self.kept
        return [group for group in self.groups[: self.start] if group is not kept[0]] if kept else []


def make_plan(
    groups: Sequence[MessageGroup], ratio: float, counter: TokenCounter, room: int, *, first: int = 0
) -> CompactionPlan:
    """The cut that keeps the last `ratio` of the messages, whole groups, the last one always.

    From there the oldest go until what is kept has place in `room` tokens, not scaled; nothing before index `first`
    is kept: the window does not show it.
    """
    counts = [len(group.list_messages()) for group in groups]
    wanted, start, found = sum(counts) * ratio, len(groups), 0
    while start > 0 and found < wanted:
        start -= 1
        found += counts[start]
    start = max(start, min(first, len(groups) - 1))
    cost = counter.count_groups(groups[start:])
    while start < len(groups) - 1 and cost > room:
        cost -= counter.count_group(groups[start])
        start += 1
    return CompactionPlan(groups, max(start, 0))


def is_due(
    source: ContextSource, groups: Sequence[MessageGroup], counter: TokenCounter, tokens: int, tokens_max: int
) -> bool:
    """Return whether a context of `tokens` must be compacted before its next turn; `groups` stand beside it."""
    if tokens < DUE_RATIO * tokens_max or is_broken(source):
        return False
    if source.compacted is not None:
        last = source.compacted.boundary.compact_metadata
        gained = last.pre_tokens - last.post_tokens >= GAIN_RATIO * last.pre_tokens
        if not gained and tokens < (1 + GAIN_RATIO) * last.post_tokens:
            return False
    plan = make_plan(groups, RETAINED_RATIO, counter, tokens_max)
    return counter.to_model_tokens(counter.count_groups(plan.replaced)) >= GAIN_RATIO * tokens


def is_broken(source: ContextSource) -> bool:
    strategies = [
        line.compact_metadata.strategy
        for line in source.lines
        if isinstance(line, CompactBoundary) and line.context_id == source.context_id
    ]
    return strategies[-FAILURES_MAX:] == [FALLBACK] * FAILURES_MAX
