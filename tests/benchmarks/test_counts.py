"""What a run costs in calls, held to budgets: `python -m benchmarks.counts --write` sets them anew."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks.counts import budgets
from benchmarks.counts.counting import Counts, opening_suite

COUNTED = {"gRPC": ("short run", "REACT run", "long run"), "OpenAI face": ("short run", "long run")}

pytestmark = pytest.mark.skipif(sys.version_info[:2] != budgets.PYTHON, reason="the budgets are for another Python")


async def test_a_run_and_a_delta_cost_no_more_than_their_budgets(tmp_path: Path) -> None:
    measured: budgets.Measured = {}
    async with opening_suite(tmp_path) as (process, entrances):
        for entrance, names in COUNTED.items():
            counts = {what: await process.count(entrances[entrance][what]) for what in names}
            counts["delta"] = counts.pop("long run").per_delta(counts["short run"])
            measured |= {(what, entrance): found for what, found in counts.items()}
    assert budgets.find_excess(measured) == []
    # The same, with a change that makes 200 calls more.
    key = ("short run", "gRPC")
    name, calls = next((name, calls) for name, calls in measured[key].functions.items() if name.startswith("services/"))
    grown = Counts(
        {**measured[key].figures, "Python calls": measured[key].figures["Python calls"] + 200},
        {**measured[key].functions, name: calls + 200},
    )
    (line,) = budgets.find_excess({key: grown})
    assert line.startswith("short run, gRPC: ")
    assert f"{name} +200" in line
