"""Records the arrival times of stamped deltas, as cheaply as Python can."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

STAMP = re.compile(rb"@(\d+)@")
STAMP_BYTES_MAX = 32


@dataclass(slots=True)
class Arrivals:
    """Arrivals of all streams of one reader; only those inside the window are recorded."""

    is_counting: bool = False
    deltas: int = 0
    delays_ms: list[float] = field(default_factory=list[float])
    """From a delta's stamp by the provider to its arrival."""

    firsts_ms: list[float] = field(default_factory=list[float])
    """From the question to the first delta."""

    asks_ms: list[float] = field(default_factory=list[float])
    """From the question to the provider's stamp of the first delta, which it sends when called; the rest is
    transport.
    """

    failures: int = 0


class Stream:
    """One answer, consumed in pieces as they arrive."""

    __slots__ = ("_arrivals", "_asked_s", "_has_first", "_tail")

    def __init__(self, arrivals: Arrivals) -> None:
        self._arrivals = arrivals
        self._asked_s = time.perf_counter()
        self._has_first = False
        self._tail = b""
        """Last bytes received, because a read may split a stamp."""

    def take(self, data: bytes) -> None:
        now_s = time.perf_counter()
        data = self._tail + data
        stamps = [*STAMP.finditer(data)]
        end = stamps[-1].end() if stamps else 0
        self._tail = data[max(end, len(data) - STAMP_BYTES_MAX) :]
        arrivals = self._arrivals
        if not stamps or not arrivals.is_counting:
            self._has_first = self._has_first or bool(stamps)
            return
        arrivals.deltas += len(stamps)
        arrivals.delays_ms += [now_s * 1000 - int(stamp[1]) / 1e6 for stamp in stamps]
        if not self._has_first:
            self._has_first = True
            arrivals.firsts_ms.append((now_s - self._asked_s) * 1000)
            arrivals.asks_ms.append(int(stamps[0][1]) / 1e6 - self._asked_s * 1000)


def percentile_ms(values_s: Sequence[float], percent: int) -> float:
    """Return a percentile of `values_s` in milliseconds; 0 if there are none."""
    rank = math.ceil(len(values_s) * percent / 100) - 1
    return sorted(values_s)[rank] * 1000 if rank >= 0 else 0.0
