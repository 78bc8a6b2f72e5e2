"""The table of aims, built from partly measured figures."""

import math

from benchmarks.entrances.aims import BIFROST, HAND, show_aims
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


def test_aims_compare_only_measured_figures() -> None:
    results: Results = {load: {} for load in (*SHORT_RUNS, *REACT_RUNS, *STREAMS)}
    results[SILENT_STREAMS] = {"gRPC": seen(0)}
    results[SHORT_RUNS[0]] = {"gRPC": seen(20), HAND: seen(20)}
    results[SHORT_RUNS[1]] = {"gRPC": seen(0), "gRPC, PostgreSQL": seen(20), HAND: seen(20)}
    results[STREAMS[0]] = {"OpenAI adapter": seen(20), BIFROST: seen(40)}
    growth = {"10 agents": rest(math.nan), "1,000 agents": rest(5.0), "first": rest(5.0), "second": rest(5.0)}
    grid = show_aims(results, {FORMS[0]: rest(5.0)}, growth)
    assert grid.rows == [
        ("CPU of a short run, 1 at once, gRPC, of by hand", "≤ 1.15", "1.00", "yes"),
        ("CPU of a delta, 40 streams, OpenAI adapter, of Bifrost core", "≤ 2", "2.00", "yes"),
        ("first delta p50, 1 stream, gRPC, of by hand", "≤ 2", "1.00", "yes"),
        ("1,000 silent streams, MB", "≤ 40", "20.0", "yes"),
        ("`headrace up` at rest, PSS MB", "≤ 140", "150.0", "no"),
        ("second: ready, of that of 10 agents", "≤ 2", "1.00", "yes"),
    ]
