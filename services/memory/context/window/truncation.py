"""The last resort for a request that does not fit its model's window.

Long texts are shortened first, older ones before the current turn; then the oldest messages are left out, with a notice
in their place. The last messages always stay, so that no request repeats the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from services.memory.context.window.shortening import get_last_n, is_shortened, make_notice, shorten_group

if TYPE_CHECKING:
    from services.memory.context.message_pairing import MessageGroup
    from services.memory.context.window.token_counter import TokenCounter

OLDER_CHARS = (16_000, 8_000, 4_000, 2_000, 1_000)
"""Lengths that older texts are cut to, one after the other, until the request fits."""

CURRENT_CHARS = (32_000, 16_000, 8_000, 4_000)
"""Likewise those of the current turn, before anything is left out."""

LAST_CHARS = (2_000, 1_000, 500, 200)
"""Likewise, once nothing else is left."""

NOTICE_TOKENS = 60
"""Room of one notice."""


@dataclass(frozen=True, slots=True)
class FittedMessages:
    groups: list[MessageGroup]
    notice: str = ""
    """Words for people about what is not there as it was said; empty if all is."""


@dataclass(slots=True)
class _Fit:
    """A request in the making; groups are shortened as whole steps, so that equal logs give equal requests."""

    groups: Sequence[MessageGroup]
    counter: TokenCounter
    room: int
    kept: frozenset[int]
    """Indexes of the groups that stay: a summary, the last user message, and what follows the last answer."""
    shown: list[MessageGroup]
    left: set[int]

    def shorten(self, indexes: Sequence[int], chars_max: int, *, with_reasoning: bool) -> None:
        for index in indexes:
            self.shown[index] = shorten_group(self.groups[index], chars_max, with_reasoning=with_reasoning)

    def fits(self) -> bool:
        groups = [group for index, group in enumerate(self.shown) if index not in self.left]
        notices = len(_list_ranges(self.left)) * NOTICE_TOKENS
        return self.counter.count_groups(groups) + notices <= self.room

    def leave_out_oldest(self) -> bool:
        """Leave out older groups until the rest fits; return whether it does."""
        total = self.counter.count_groups(self.shown)
        for index, group in enumerate(self.shown):
            if index in self.kept:
                continue
            if index - 1 not in self.left:
                total += NOTICE_TOKENS
            self.left.add(index)
            total -= self.counter.count_group(group)
            if total <= self.room:
                return True
        return False


def fit_groups(groups: Sequence[MessageGroup], counter: TokenCounter, room: int, *, summary: bool) -> FittedMessages:
    """Return the groups within `room` unscaled tokens, as far as that is possible; with `summary` the first is one."""
    if counter.count_groups(groups) <= room:
        return FittedMessages(list(groups))
    last_user = max((index for index, group in enumerate(groups) if group.role == "user"), default=-1)
    kept = frozenset({last_user, len(groups) - 1} | ({0} if summary else set())) - {-1}
    fit = _Fit(groups, counter, room, kept, list(groups), set())
    _shorten_until_it_fits(fit)
    return FittedMessages(_place_notices(fit), _describe(fit))


def _shorten_until_it_fits(fit: _Fit) -> None:
    older = [index for index in range(len(fit.groups)) if index not in fit.kept]
    current = sorted(fit.kept)
    for chars_max in OLDER_CHARS:
        fit.shorten(older, chars_max, with_reasoning=chars_max > OLDER_CHARS[-1])
        if fit.fits():
            return
    for chars_max in CURRENT_CHARS:
        fit.shorten(current, chars_max, with_reasoning=True)
        if fit.fits():
            return
    if fit.leave_out_oldest():
        return
    for chars_max in LAST_CHARS:
        fit.shorten(current, chars_max, with_reasoning=chars_max > LAST_CHARS[-1])
        if fit.fits():
            return


def _place_notices(fit: _Fit) -> list[MessageGroup]:
    starts = dict(_list_ranges(fit.left))
    placed: list[MessageGroup] = []
    for index, group in enumerate(fit.shown):
        if index in starts:
            first, last = fit.groups[index], fit.groups[starts[index]]
            placed.append(make_notice(first.head.at.n if first.head.at else 0, get_last_n(last)))
        if index not in fit.left:
            placed.append(group)
    return placed


def _list_ranges(left: set[int]) -> list[tuple[int, int]]:
    """Return the first and last index of each run of neighbours in `left`."""
    ranges: list[tuple[int, int]] = []
    for index in sorted(left):
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1] = (ranges[-1][0], index)
        else:
            ranges.append((index, index))
    return ranges


def _describe(fit: _Fit) -> str:
    count = sum(is_shortened(group) for index, group in enumerate(fit.shown) if index not in fit.left)
    parts = [f"{count:,} long messages are shortened"] if count else []
    parts += [f"{len(fit.left):,} older ones are left out"] if fit.left else []
    return f"the chat does not fit the model's window: {' and '.join(parts)}" if parts else ""
