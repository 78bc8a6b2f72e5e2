"""The performance aims: ratios within one run, and sizes that hold on every machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping

from benchmarks.entrances.growth import FORMS, Rest
from benchmarks.entrances.loads import (
    REACT_RUNS,
    SHORT_RUNS,
    SILENT_STREAMS,
    STREAMS,
    Results,
    get_delta_cpu_us,
    get_run_cpu_ms,
)
from benchmarks.entrances.measuring import Load
from benchmarks.entrances.reader import Seen
from benchmarks.grid import Grid

HAND = "FastAPI + httpx, no log"
OPENAI = "OpenAI adapter"
BIFROST = "Bifrost core, no log"

Aims = Iterator[tuple[str, float, float]]
"""Name, maximum and measured value, which is not a number if a part of it was not measured."""


def show_aims(
    results: Results, forms: Mapping[str, Rest], growth: Mapping[str, Rest], imports_s: float = math.nan
) -> Grid:
    """Return a grid with a row for each aim with measured ways; `imports_s` is the time of a process that only imports
    what the suite is built on.
    """
    grid = Grid("Aims", ("<what", "aim", "measured", "<reached"))
    for what, aim, value in (*_list_ratios(results), *_list_rest(results, forms, growth, imports_s)):
        if value > 0:  # not NaN, nor 0 if no run began in the window
            shown = f"{value:.2f}" if value < 10 else f"{value:.1f}"
            grid.rows.append((what, f"≤ {aim:g}", shown, "yes" if value <= aim else "no"))
    return grid


def _list_ratios(results: Results) -> Aims:
    def compare(load: Load, measure: Callable[[Seen], float], way: str, peer: str) -> float:
        values = {name: measure(seen) for name, seen in results[load].items() if seen.deltas}
        return values[way] / max(values[peer], 1e-9) if way in values and peer in values else math.nan

    for load, aim in zip(SHORT_RUNS, (1.15, 1.1), strict=True):
        cost = compare(load, lambda seen, load=load: get_run_cpu_ms(load, seen), "gRPC", HAND)
        yield f"CPU of a short run, {load.streams} at once, gRPC, of by hand", aim, cost
    load = REACT_RUNS[1]
    cost = compare(load, lambda seen: get_run_cpu_ms(load, seen), "gRPC", HAND)
    yield f"CPU of a REACT run, {load.streams} at once, gRPC, of by hand", 1.3, cost
    for way, aim in (("gRPC", 0.55), (OPENAI, 0.85)):
        yield f"CPU of a delta, 40 streams, {way}, of by hand", aim, compare(STREAMS[0], get_delta_cpu_us, way, HAND)
    for load, aim in zip(STREAMS, (2.0, 1.5), strict=True):
        of = f"CPU of a delta, {load.streams} streams, {OPENAI}, of"
        yield f"{of} Bifrost core", aim, compare(load, get_delta_cpu_us, OPENAI, BIFROST)
        yield f"{of} LiteLLM", 0.2, compare(load, get_delta_cpu_us, OPENAI, "LiteLLM")
        go = compare(load, get_delta_cpu_us, "Go gateway", "SSE")
        yield f"CPU of a delta, {load.streams} streams, Go gateway and suite, of SSE", 1.5, go
    for load, what in ((SHORT_RUNS[0], "1 stream"), (STREAMS[0], "40 streams"), (STREAMS[1], "160 streams")):
        wait = compare(load, lambda seen: seen.first_ms_p50, "gRPC", HAND)
        yield f"first delta p50, {what}, gRPC, of by hand", 2.0, wait
    stored = compare(SHORT_RUNS[1], lambda seen: get_run_cpu_ms(SHORT_RUNS[1], seen), "gRPC, PostgreSQL", "gRPC")
    yield "CPU of a short run on PostgreSQL, 16 at once, of one on files", 1.2, stored


def _list_rest(results: Results, forms: Mapping[str, Rest], growth: Mapping[str, Rest], imports_s: float) -> Aims:
    silent = results[SILENT_STREAMS].get("gRPC")
    yield f"{SILENT_STREAMS.streams:,} silent streams, MB", 40, sum(silent.added_mb.values()) if silent else math.nan
    yield (
        "`headrace up`: ready, of `python -c 'import grpc, aiohttp, pydantic'`",
        4,
        forms[FORMS[0]].ready_s / imports_s,
    )
    yield "`headrace up` at rest, PSS MB", 140, forms[FORMS[0]].idle_mb
    small, agents, _, chats = growth.items()
    yield f"{chats[0]}: ready, of that of {small[0]}", 2, chats[1].ready_s / small[1].ready_s
    for name, rest in (agents, chats):
        yield (
            f"{name}: CPU of a short run, of that of {small[0]}",
            1.1,
            rest.run_cpu_ms / max(small[1].run_cpu_ms, 0.01),
        )
