"""From what the readers saw to figures: medians over the rounds, each round against the direct reader of its own."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.measuring import Load, Results
from benchmarks.reader import Seen
from benchmarks.ways import DIRECT

OWN = ("simulator", "reader", "memory")
"""Processes that are not the way itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one load on one way."""

    load: Load
    way: str
    begun: int
    deltas_per_s: float
    cpu_us: dict[str, float]
    """By process, for each delta."""
    gap_ms: tuple[float, float]
    """p50 and p99 above the direct reader's."""
    first_ms: tuple[float, float]
    """The same of the time to the first delta."""

    @property
    def way_us(self) -> float:
        """CPU time of all processes that a delta passes; 0 on the direct way."""
        return sum(spent for name, spent in self.cpu_us.items() if name not in OWN)

    @property
    def per_cpu_s(self) -> float:
        """Deltas that a second of one core relays."""
        return 1e6 / self.way_us if self.way_us else 0.0


def figures(results: Results) -> list[Figures]:
    """In the order of measurement; rounds in which a stream broke are left out, and ways of which none is left."""
    rows: list[Figures] = []
    for (load, way), seen in results.items():
        pairs = zip(seen, results[load, DIRECT], strict=True)
        if whole := [(here, there) for here, there in pairs if here is not None and there is not None]:
            rows.append(_figures(load, way, whole))
    return rows


def _figures(load: Load, way: str, pairs: list[tuple[Seen, Seen]]) -> Figures:
    seen = [here for here, _ in pairs]

    def added(value: Callable[[Seen], float]) -> float:
        return statistics.median(value(here) - value(there) for here, there in pairs)

    return Figures(
        load=load,
        way=way,
        begun=min(one.begun for one in seen),
        deltas_per_s=statistics.median(one.deltas / one.elapsed_s for one in seen),
        cpu_us={
            name: statistics.median(one.cpu_us[name] / max(one.deltas, 1) for one in seen) for name in seen[0].cpu_us
        },
        gap_ms=(added(lambda one: one.gap_ms_p50), added(lambda one: one.gap_ms_p99)),
        first_ms=(added(lambda one: one.first_ms_p50), added(lambda one: one.first_ms_p99)),
    )


def us(value: float) -> str:
    """As it is shown: with as many digits as mean something."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
