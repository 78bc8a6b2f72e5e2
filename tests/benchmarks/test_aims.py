"""The table of aims, of figures that were measured in part."""

import math
import sys
from pathlib import Path

import pytest

from benchmarks.counts import budgets
from benchmarks.counts.counting import Counts, opening_suite
from benchmarks.entrances.aims import show_aims
from benchmarks.entrances.growth import FORMS, Rest
from benchmarks.entrances.loads import REACT_RUNS, SHORT_RUNS, SILENT_STREAMS, STREAMS, Results
from benchmarks.entrances.reader import Seen


def seen(deltas: int) -> Seen:
    spent_us = 1000.0 if deltas else 0.0
    return Seen(
        deltas=deltas,
        elapsed_s=1.0,
        failures=0,
        first_ms_p50=3.0,
        first_ms_p99=4.0,
        ask_ms_p50=2.5,
        ask_ms_p99=3.0,
        delay_ms_p50=1.0,
        delay_ms_p99=2.0,
        cpu_us=dict.fromkeys(("facade", "orchestrator", "Go gateway"), spent_us),
        added_mb={"suite": 20.0},
    )


def rest(run_cpu_ms: float) -> Rest:
    return Rest(ready_s=1.0, idle_mb=150.0, idle_share=0.5, run_cpu_ms=run_cpu_ms)


def test_what_was_not_measured_reaches_no_aim() -> None:
    results: Results = {load: {} for load in (*SHORT_RUNS, *REACT_RUNS, *STREAMS)}
    results[SILENT_STREAMS] = {"gRPC": seen(0)}
    results[SHORT_RUNS[0]] = {"gRPC": seen(20)}
    results[SHORT_RUNS[1]] = {"gRPC": seen(0), "gRPC, PostgreSQL": seen(20)}
    results[STREAMS[0]] = {"Go gateway": seen(20)}
    growth = {"10 agents": rest(math.nan), "1,000 agents": rest(5.0), "first": rest(5.0), "second": rest(5.0)}
    grid = show_aims(results, {FORMS[0]: rest(5.0)}, growth)
    assert [row[0] for row in grid.rows] == [
        "first delta after the question, 1 stream, gRPC, p50 ms",
        "the same, p99 ms",
        "short run, 1 at a time, CPU ms",
        "1,000 silent streams, MB",
        "`headrace up`: ready, s",
        "the same, PSS MB",
        "second, ready, s",
    ]
    assert {row[3] for row in grid.rows} == {"yes"}


COUNTED = {"gRPC": ("short run", "REACT run", "long run"), "OpenAI face": ("short run", "long run")}

ATTEMPTS = 3
"""On a busy machine a run takes longer, and does more of what is due by the clock; the least count is the run's."""


async def count(folder: Path) -> budgets.Measured:
    measured: budgets.Measured = {}
    async with opening_suite(folder) as (process, entrances):
        for entrance, names in COUNTED.items():
            counts = {what: await process.count(entrances[entrance][what]) for what in names}
            counts["delta"] = counts.pop("long run").per_delta(counts["short run"])
            measured |= {(what, entrance): found for what, found in counts.items()}
    return measured


@pytest.mark.skipif(sys.version_info[:2] != budgets.PYTHON, reason="the budgets are for another Python")
async def test_a_run_and_a_delta_cost_no_more_than_their_budgets(tmp_path: Path) -> None:
    measured: budgets.Measured = {}
    excess: list[str] = []
    for attempt in range(ATTEMPTS):
        (folder := tmp_path / str(attempt)).mkdir()
        measured = await count(folder)
        if not (excess := budgets.find_excess(measured)):
            break
    else:
        pytest.fail("\n".join(excess))
    # The same, with a change that makes many more calls.
    key, more = ("short run", "gRPC"), 2000
    name, calls = next((name, calls) for name, calls in measured[key].functions.items() if name.startswith("services/"))
    figures, functions = measured[key].figures, measured[key].functions
    grown = Counts({**figures, "Python calls": figures["Python calls"] + more}, {**functions, name: calls + more})
    (line,) = budgets.find_excess({key: grown})
    assert line.startswith("short run, gRPC: ")
    assert f"{name} +" in line
