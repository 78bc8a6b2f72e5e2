"""How many deltas a second each transport carries before a reader notices."""

from __future__ import annotations

from benchmarks.grid import Grid
from benchmarks.measuring import Load, measure
from benchmarks.ways import DIRECT, Way, Ways

STEPS = (40, 80, 120, 160, 240, 320, 480, 640)
"""Streams of 33 deltas a second."""

LIMITS_MS = (1, 5, 10, 50)
"""Of the added gap's p99."""


async def capacity(ways: Ways, window_s: float) -> Grid:
    """The most that each transport has carried with the added gap below each limit; one look at each step."""
    columns = ("<transport", *(f"added gap p99 ≤ {limit} ms" for limit in LIMITS_MS))
    grid = Grid("Capacity (deltas/s)", columns)
    direct = next(way for way in ways.ways if way.name == DIRECT)
    floor = {step: (await measure(ways, direct, Load(step), window_s)).gap_ms_p99 for step in STEPS}
    for way in ways.ways:
        if way.transport:
            carried = await _carried(ways, way, floor, window_s)
            grid.rows.append((way.name, *(_shown(carried, limit) for limit in LIMITS_MS)))
    return grid


async def _carried(ways: Ways, way: Way, floor: dict[int, float], window_s: float) -> dict[int, tuple[float, float]]:
    """Deltas a second, and the added gap's p99, by step; the steps end behind the one that passes the last limit."""
    carried: dict[int, tuple[float, float]] = {}
    for step in STEPS:
        seen = await measure(ways, way, Load(step), window_s)
        carried[step] = (seen.deltas / seen.elapsed_s, seen.gap_ms_p99 - floor[step])
        if carried[step][1] > LIMITS_MS[-1]:
            break
    return carried


def _shown(carried: dict[int, tuple[float, float]], limit_ms: float) -> str:
    below = 0.0
    for rate, added_ms in carried.values():
        if added_ms > limit_ms:
            return f"{below:,.0f}" if below else f"below {rate:,.0f}"
        below = rate
    return f"≥ {below:,.0f}"
