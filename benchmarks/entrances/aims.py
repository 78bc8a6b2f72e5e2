"""The performance aims, and whether they are reached."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping

from benchmarks.entrances.growth import FORMS, Rest
from benchmarks.entrances.loads import (
    REACT_RUNS,
    SHORT_RUNS,
    SILENT_STREAMS,
    STREAMS,
    Results,
    get_core_share,
    get_delta_cpu_us,
    get_run_cpu_ms,
)
from benchmarks.entrances.measuring import Load
from benchmarks.entrances.reader import Seen
from benchmarks.grid import Grid

HAND = "FastAPI + httpx, no log"
GO = "Go gateway"

ABSENT = Seen(
    deltas=1,
    elapsed_s=math.nan,
    failures=0,
    first_ms_p50=math.nan,
    first_ms_p99=math.nan,
    ask_ms_p50=math.nan,
    ask_ms_p99=math.nan,
    delay_ms_p50=math.nan,
    delay_ms_p99=math.nan,
    cpu_us=defaultdict(lambda: math.nan, all=math.nan),
    added_mb={},
)
"""Placeholder for a missing measurement; every figure computed from it is not a number."""


def show_aims(results: Results, forms: Mapping[str, Rest], growth: Mapping[str, Rest]) -> Grid:
    """Return a grid with a row for each aim with measured ways."""
    grid = Grid("Aims", ("<what", "aim", "measured", "<reached"))
    for what, aim, value in (*_list_costs(results), *_list_streams(results), *_list_rest(results, forms, growth)):
        if not value > 0:  # NaN, or 0 if no run began or ended in the window
            continue
        grid.rows.append(
            (what, f"≤ {aim:g}", f"{value:.2f}" if value < 10 else f"{value:.1f}", "yes" if value <= aim else "no")
        )
    return grid


Aims = Iterator[tuple[str, float, float]]
"""Name, maximum and measured value."""


def _get_measured(results: Results, load: Load) -> Mapping[str, Seen]:
    """Return the measurements by way; ABSENT for a way without a delta."""
    return defaultdict(lambda: ABSENT, {name: seen for name, seen in results[load].items() if seen.deltas})


def _list_costs(results: Results) -> Aims:
    one, sixteen = (_get_measured(results, load) for load in SHORT_RUNS)
    yield "first delta after the question, 1 stream, gRPC, p50 ms", 4, one["gRPC"].first_ms_p50
    yield "the same, p99 ms", 8, one["gRPC"].first_ms_p99
    yield "the same over SSE, p50 ms", 5, one["SSE"].first_ms_p50
    yield "the same, p99 ms", 10, one["SSE"].first_ms_p99
    yield "short run, 1 at a time, CPU ms", 6, get_run_cpu_ms(SHORT_RUNS[0], one["gRPC"])
    yield "short run, 16 at a time, CPU ms", 4, get_run_cpu_ms(SHORT_RUNS[1], sixteen["gRPC"])
    react = _get_measured(results, REACT_RUNS[1])
    yield "REACT run of three steps, 16 at a time, CPU ms", 12, get_run_cpu_ms(REACT_RUNS[1], react["gRPC"])
    if HAND in react:
        rates = [react[name].deltas / react[name].elapsed_s for name in (HAND, "gRPC")]
        yield "the hand-written server's REACT runs/s, of ours", 0.5, rates[0] / max(rates[1], 0.1)
    if "gRPC, PostgreSQL" in sixteen:
        costs = [get_run_cpu_ms(SHORT_RUNS[1], sixteen[name]) for name in ("gRPC, PostgreSQL", "gRPC")]
        yield "short run on PostgreSQL, of one on files", 1.2, costs[0] / costs[1]


def _list_streams(results: Results) -> Aims:
    few, many = (_get_measured(results, load) for load in STREAMS)
    for name, aims in (("gRPC", (4, 8)), ("SSE", (5, 10))):
        yield f"first delta, 40 streams, {name}, p50 ms", aims[0], few[name].first_ms_p50
        yield "the same, p99 ms", aims[1], few[name].first_ms_p99
    for name in ("gRPC", "SSE"):
        yield f"first delta, 160 streams, {name}, p50 ms", 8, many[name].first_ms_p50
        yield "the same, p99 ms", 30, many[name].first_ms_p99
        yield f"a delta's latency, 160 streams, {name}, p99 ms", 5, many[name].delay_ms_p99
    for load, seen in zip(STREAMS, (few, many), strict=True):
        split = seen["SSE, split"].cpu_us
        yield (
            f"the facade's CPU, of the orchestrator's, {load.streams} streams",
            1,
            split["facade"] / split["orchestrator"],
        )
        if GO in seen:
            facade_us = split["facade"] / seen["SSE, split"].deltas
            own_us = seen[GO].cpu_us[GO] / seen[GO].deltas
            yield f"the Go gateway's own CPU, of the embedded facade's, {load.streams} streams", 0.5, own_us / facade_us
        if "LiteLLM" in seen and seen["LiteLLM"].deltas:
            costs = [get_delta_cpu_us(seen[name]) for name in ("OpenAI face", "LiteLLM")]
            yield f"the OpenAI face's CPU a delta, of LiteLLM's, {load.streams} streams", 0.2, costs[0] / costs[1]


def _list_rest(results: Results, forms: Mapping[str, Rest], growth: Mapping[str, Rest]) -> Aims:
    silent = results[SILENT_STREAMS].get("gRPC", ABSENT)
    yield f"{SILENT_STREAMS.streams:,} silent streams, % of a core", 2, get_core_share(silent)
    yield f"{SILENT_STREAMS.streams:,} silent streams, MB", 50, sum(silent.added_mb.values())
    yield "`headrace up`: ready, s", 1.5, forms[FORMS[0]].ready_s
    yield "the same, PSS MB", 170, forms[FORMS[0]].idle_mb
    small, agents, _, chats = growth.items()
    yield f"{chats[0]}, ready, s", 3, chats[1].ready_s
    for name, rest in (agents, chats):
        yield (
            f"{name}: CPU of a short run, of that of {small[0]}",
            1.1,
            rest.run_cpu_ms / max(small[1].run_cpu_ms, 0.01),
        )
