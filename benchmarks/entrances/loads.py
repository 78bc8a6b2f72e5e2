"""The loads with which every way is measured, and their tables."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from benchmarks.entrances.measuring import DELTAS, Load, Measuring
from benchmarks.entrances.reader import Seen
from benchmarks.entrances.ways import LONG, REACT, SHORT, SILENT, Way
from benchmarks.grid import Grid, us

SHORT_RUNS = (Load(SHORT, 1, 0.1), Load(SHORT, 16, 0.1))
REACT_RUNS = (Load(REACT, 1, 0.3), Load(REACT, 16, 0.3))
STREAMS = (Load(LONG, 40, 6.0), Load(LONG, 160, 6.0))
SILENT_STREAMS = Load(SILENT, 1000, 10.0, settle_s=10.0)
RATE_MIN = 32.5
"""Deltas a second that a stream of a way that keeps up delivers; the provider sends 33."""

SILENT_WAYS = ("gRPC", "SSE", "gRPC, split")

Results = dict[Load, Mapping[str, Seen]]
"""Measurements by load and by name of the way."""


@dataclass(slots=True)
class Page:
    """The measurements, and the tables built from them."""

    results: Results = field(default_factory=Results)
    grids: list[Grid] = field(default_factory=list[Grid])
    disk_ms: tuple[float, float] = (math.nan, math.nan)
    """Time of a write and its `fdatasync` alone, p50 and p99."""


async def measure_loads(measuring: Measuring, ways: Sequence[Way], page: Page) -> None:
    # First, before other loads have filled the allocators.
    quiet = [way for way in ways if way.name in SILENT_WAYS]
    page.results[SILENT_STREAMS] = await measuring.measure_all(SILENT_STREAMS, quiet)
    for load in (*SHORT_RUNS, *STREAMS):
        page.results[load] = await measuring.measure_all(load, ways)
    for load in REACT_RUNS:
        page.results[load] = await measuring.measure_all(load, [way for way in ways if way.react_url])
    page.grids += [
        show_runs("A short run: 20 deltas, 5 ms apart", SHORT_RUNS, page.results),
        show_runs("A REACT run of three steps: two calls of a tool, 60 deltas", REACT_RUNS, page.results),
        show_streams(page.results),
        show_parts(page.results),
        show_silent(page.results[SILENT_STREAMS]),
        show_steps(page.results, page.disk_ms),
    ]


def sum_cpu_ms(seen: Seen) -> float:
    return sum(seen.cpu_us.values()) / 1000


def get_run_cpu_ms(load: Load, seen: Seen) -> float:
    return sum_cpu_ms(seen) * DELTAS[load.key] / max(seen.deltas, 1)


def get_delta_cpu_us(seen: Seen) -> float:
    return sum(seen.cpu_us.values()) / max(seen.deltas, 1)


def show_runs(title: str, loads: Sequence[Load], results: Results) -> Grid:
    columns = [
        f"{load.streams} at once: {name}" if not at else name
        for load in loads
        for at, name in enumerate(("CPU ms/run", "runs/s", "first delta ms p50", "p99"))
    ]
    grid = Grid(title, ("<way", *columns))
    for name in results[loads[0]]:
        cells: list[str] = []
        for load in loads:
            cells += _show_run(load, results[load].get(name))
        grid.rows.append((name, *cells))
    return grid


def _show_run(load: Load, seen: Seen | None) -> tuple[str, ...]:
    if seen is None or not seen.deltas:
        return ("–",) * 4
    runs_per_s = seen.deltas / DELTAS[load.key] / seen.elapsed_s
    firsts = (_show_first(seen.first_ms_p50), _show_first(seen.first_ms_p99))
    return (f"{get_run_cpu_ms(load, seen):.1f}", f"{runs_per_s:.0f}", *firsts)


def _show_first(wait_ms: float) -> str:
    return f"{wait_ms:.1f}" if wait_ms else "–"  # no run began in the window


def show_streams(results: Results) -> Grid:
    columns = (
        "streams",
        "<way",
        "deltas/s",
        "keeps up",
        "CPU µs/delta",
        "first delta ms p50",
        "p99",
        "delta late ms p50",
        "p99",
    )
    grid = Grid("Streams of 200 deltas, 33 a second, runs beginning all the time", columns)
    for load in STREAMS:
        for name, seen in results[load].items():
            rate = seen.deltas / seen.elapsed_s
            firsts = (_show_first(seen.first_ms_p50), _show_first(seen.first_ms_p99))
            lates = (f"{seen.delay_ms_p50:.1f}", f"{seen.delay_ms_p99:.1f}")
            cost = us(get_delta_cpu_us(seen)) if seen.deltas else "–"
            rates = (f"{rate:,.0f}", "yes" if rate >= RATE_MIN * load.streams else "no")
            grid.rows.append((f"{load.streams}", name, *rates, cost, *firsts, *lates))
    return grid


def show_parts(results: Results) -> Grid:
    grid = Grid("The same by process, CPU µs/delta", ("streams", "<way", "<processes"))
    for load in STREAMS:
        for name, seen in results[load].items():
            if len(seen.cpu_us) > 1 and seen.deltas:
                parts = [f"{part} {us(spent / seen.deltas)}" for part, spent in _sum_parts(seen).items()]
                grid.rows.append((f"{load.streams}", name, ", ".join(parts)))
    return grid


def _sum_parts(seen: Seen) -> dict[str, float]:
    """Return the CPU time by program; a database has several numbered processes."""
    parts = defaultdict[str, float](float)
    for name, spent_us in seen.cpu_us.items():
        parts[name.rstrip(" 0123456789")] += spent_us
    return parts


def show_silent(seen: Mapping[str, Seen]) -> Grid:
    title = f"{SILENT_STREAMS.streams:,} open streams whose model is silent"
    grid = Grid(title, ("<way", "CPU, % of a core", "MB added"))
    for name, one in seen.items():
        share = get_core_share(one)
        grid.rows.append((name, f"{share:.1f}", f"{sum(one.added_mb.values()):.0f}"))
    return grid


def show_steps(results: Results, disk_ms: tuple[float, float]) -> Grid:
    """Return a grid that splits the wait for the first delta: until the model is called, and until the reader
    has it.
    """
    columns = ("streams", "<way", "question to model, ms p50", "p99", "the whole, ms p50", "p99")
    grid = Grid("The first delta by step", columns)
    alone = (f"{wait_ms:.1f}" for wait_ms in disk_ms)
    grid.rows.append(("–", "a line's write and fdatasync alone", *alone, "–", "–"))
    for load in (SHORT_RUNS[0], *STREAMS):
        for name, seen in results[load].items():
            if seen.first_ms_p50:
                waits = (seen.ask_ms_p50, seen.ask_ms_p99, seen.first_ms_p50, seen.first_ms_p99)
                grid.rows.append((f"{load.streams}", name, *(f"{wait_ms:.1f}" for wait_ms in waits)))
    return grid


def get_core_share(seen: Seen) -> float:
    """Return the CPU time of all processes in percent of a core."""
    return sum_cpu_ms(seen) / 10 / seen.elapsed_s
