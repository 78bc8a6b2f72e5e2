"""The number of function calls per run stays within budgets, which `python -m benchmarks.counts --write` updates."""

import sys
from pathlib import Path

import pytest

from benchmarks.counts import budgets
from benchmarks.counts.counting import Counts, opening_suite

COUNTED = {"gRPC": ("short run", "REACT run", "long run"), "OpenAI adapter": ("short run", "long run")}

pytestmark = pytest.mark.skipif(sys.version_info[:2] != budgets.PYTHON, reason="the budgets are for another Python")


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
