"""When deltas arrived, kept as cheaply as Python can: what the reader costs is taken from what it measures."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

MARK = b" headrace"
"""The text of the simulator's load models: once in each delta, whatever is wrapped around it."""


class Stream:
    """One stream as its reader sees it."""

    __slots__ = ("asked_s", "first", "has_begun", "last_s")

    def __init__(self, first: asyncio.Future[float] | None = None) -> None:
        self.asked_s = time.perf_counter()
        self.first = first
        """Gets the seconds from the question to the first delta, where somebody wants to know."""
        self.has_begun = False
        """Anything has come, a delta or not."""
        self.last_s = 0.0
        """When the last delta came; 0: none has."""


@dataclass(slots=True)
class Arrivals:
    """Of all streams of one reader."""

    expected: int
    """Streams that are to begin."""

    begun: int = 0
    """Streams of which anything has come."""

    all_begun: asyncio.Event = field(default_factory=asyncio.Event)

    deltas: int = 0
    """In the window, as the gaps are; whatever comes before it or behind it is only read."""

    gaps_s: list[float] = field(default_factory=list[float])
    """Those between reads; of deltas that one read brought together, only `deltas` knows."""

    is_counting: bool = False
    """The window is open."""

    def begin(self, stream: Stream) -> None:
        """Note that something has come."""
        if not stream.has_begun:
            stream.has_begun = True
            self.begun += 1
            if self.begun == self.expected:
                self.all_begun.set()

    def arrived(self, stream: Stream, count: int) -> None:
        """Note `count` deltas that came at once."""
        now_s = time.perf_counter()
        if self.is_counting:
            self.deltas += count
            if stream.last_s:
                self.gaps_s.append(now_s - stream.last_s)
        if not stream.last_s and stream.first is not None and not stream.first.done():
            stream.first.set_result(now_s - stream.asked_s)
        stream.last_s = now_s

    def gap_ms(self, percent: int) -> float:
        """A percentile of all gaps in the window, those of no time included."""
        return percentile_ms(self.gaps_s, percent, zeros=self.deltas - len(self.gaps_s))


def percentile_ms(values_s: Sequence[float], percent: int, *, zeros: int = 0) -> float:
    """Of `values_s` and so many zeros, in milliseconds; 0 of nothing."""
    rank = math.ceil((len(values_s) + zeros) * percent / 100) - 1 - zeros
    return sorted(values_s)[rank] * 1000 if rank >= 0 else 0.0
