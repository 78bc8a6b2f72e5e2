"""The figures as tables."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.figures import OWN, Figures, us
from benchmarks.grid import Grid
from benchmarks.measuring import FLAT_OUT
from benchmarks.ways import CHAIN, DIRECT, LITELLM

NONE = "–"


def relaying(rows: Sequence[Figures]) -> Grid:
    """The figures that docs/performance-transports.md shows, a row for each load and way."""
    grid = Grid(
        "What a delta costs, and what it waits",
        (
            *("streams", "<pace", "<way", "deltas/s", "gateway µs", "orchestrator µs", "CPU µs/delta"),
            *("deltas/CPU s", "× LiteLLM", "added gap ms p50", "p99", "added first delta ms p50", "p99"),
        ),
    )
    litellm = {row.load: row.per_cpu_s for row in rows if row.way == LITELLM}
    for row in rows:
        peer = litellm.get(row.load)
        own = [us(row.cpu_us[name]) if name in row.cpu_us else NONE for name in CHAIN]
        cost = [us(row.way_us), f"{row.per_cpu_s:,.0f}", f"{row.per_cpu_s / peer:.1f}" if peer else NONE]
        added = [f"{value:.2f}" for value in (*row.gap_ms, *row.first_ms)]
        if row.way == DIRECT:
            cost, added = [NONE] * 3, [NONE] * 4
        elif row.load.model == FLAT_OUT:
            added = [NONE] * 4  # there is no gap to add to
        begun = row.way if row.begun >= row.load.streams else f"{row.way} ({row.begun} streams began)"
        grid.rows.append((f"{row.load.streams}", row.load.pace, begun, f"{row.deltas_per_s:,.0f}", *own, *cost, *added))
    return grid


def own_costs(rows: Sequence[Figures]) -> Grid:
    """What the measuring itself costs, and the suite's memory service."""
    grid = Grid("CPU µs per delta beside the way", ("streams", "<pace", "<way", *OWN))
    for row in rows:
        cells = (us(row.cpu_us[name]) if name in row.cpu_us else NONE for name in OWN)
        grid.rows.append((f"{row.load.streams}", row.load.pace, row.way, *cells))
    return grid
