"""What a thousand open streams weigh, whose model is silent."""

from __future__ import annotations

from benchmarks.grid import Grid
from benchmarks.measuring import IDLE, Load, measure
from benchmarks.ways import CHAIN, Ways

STREAMS = Load(1000, IDLE)
WARM_UP = Load(20)
WINDOW_S = 3.0


async def weights(ways: Ways) -> Grid:
    """Resident memory that the streams add; to be measured before anything else fills the allocators."""
    grid = Grid(
        f"Resident memory that {STREAMS.streams:,} open streams add (MB)", ("<transport", "begun", *CHAIN, "both")
    )
    for way in ways.ways:
        if way.transport:
            await measure(ways, way, WARM_UP, WINDOW_S)
            seen = await measure(ways, way, STREAMS, WINDOW_S)
            added = [seen.added_mb[name] for name in CHAIN]
            grid.rows.append((way.name, f"{seen.begun:,}", *(f"{mb:.1f}" for mb in (*added, sum(added)))))
    return grid
