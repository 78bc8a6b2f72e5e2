"""Chooses the messages that a compaction replaces or keeps, and decides whether it is worthwhile."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.memory.context.source import keep_from
from services.memory.log.lines import CompactBoundary

if TYPE_CHECKING:
    from services.memory.context.pairing import MessageGroup
    from services.memory.context.source import ContextSource
    from services.memory.context.token_counter import TokenCounter
    from services.memory.context.view import ContextView, ContextWindow

FALLBACK_RATIO = 0.3
"""Share of the messages kept after a failed summary."""

GAIN_RATIO = 0.1
"""Minimum share of tokens saved to justify a model call, or another compaction."""

GAIN_TOKENS_MIN = 1_000
"""Minimum tokens that a compaction replaces while the window has room, because a summary may be as long."""

FAILURES_MAX = 3
"""Consecutive failures that end automatic compaction of a run's context."""

SUMMARY = "summary"
FALLBACK = "fallback"


@dataclass(frozen=True, slots=True)
class CompactionPlan:
    groups: Sequence[MessageGroup]
    """All messages that a compaction may replace, without a former summary."""
    start: int
    """Index of the first group kept."""

    @property
    def kept(self) -> list[MessageGroup]:
        return keep_from(self.groups, self.start)

    @property
    def replaced(self) -> list[MessageGroup]:
        kept = self.kept
        return [group for group in self.groups[: self.start] if group is not kept[0]] if kept else []


def make_plan(
    groups: Sequence[MessageGroup], ratio: float, counter: TokenCounter, room: int, *, first: int = 0
) -> CompactionPlan:
    """Keep the last `ratio` of the messages in whole groups, at least the last group.

    The oldest of those are dropped until the rest fits in `room` unscaled tokens; nothing before index `first`, outside
    the window, is kept.
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
    source: ContextSource, view: ContextView, window: ContextWindow, counter: TokenCounter, tokens: int, tokens_max: int
) -> bool:
    """Return whether a context of `tokens` needs compaction before its next turn."""
    if tokens < window.due_ratio * tokens_max or is_broken(source):
        return False
    if source.compacted is not None:
        last = source.compacted.boundary.compact_metadata
        gained = last.pre_tokens - last.post_tokens >= GAIN_RATIO * last.pre_tokens
        if not gained and tokens < (1 + GAIN_RATIO) * last.post_tokens:
            return False
    return _count_gain(view, window, counter, tokens_max) >= GAIN_RATIO * tokens


def is_worth_a_summary(view: ContextView, window: ContextWindow, counter: TokenCounter) -> bool:
    """Return whether a compaction for a cap would replace more than a summary costs."""
    return _count_gain(view, window, counter, sys.maxsize) >= GAIN_TOKENS_MIN


def _count_gain(view: ContextView, window: ContextWindow, counter: TokenCounter, tokens_max: int) -> int:
    plan = make_plan([*view.earlier, *view.own], window.kept_ratio, counter, tokens_max)
    return counter.to_model_tokens(counter.count_groups(plan.replaced))


def is_broken(source: ContextSource) -> bool:
    strategies = [
        line.compact_metadata.strategy
        for line in source.lines
        if isinstance(line, CompactBoundary) and line.context_id == source.context_id
    ]
    return strategies[-FAILURES_MAX:] == [FALLBACK] * FAILURES_MAX
