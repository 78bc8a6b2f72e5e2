"""The budgets of counts: each figure of each entrance may grow by its tolerance, and no more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.counts.counting import Counts
from benchmarks.grid import Grid

FILE = Path(__file__).parent / "budgets.json"
PYTHON = (3, 11)
"""Version of Python that the budgets are for; others inline other calls."""

TOLERANCES = {
    "Python calls": 0.03,
    "C calls": 0.03,
    "functions": 0.03,
    "files": 0.03,
    "fsyncs": 0.0,
    # These depend on how many runs share a write of the index, and so on the machine: they are kept, not held.
    "SQL statements": float("inf"),
    "bytes written": float("inf"),
    "thread switches": float("inf"),
    "system calls": float("inf"),
}

LISTED = (("short run", "gRPC"), ("REACT run", "gRPC"), ("short run", "OpenAI adapter"))
"""The counts whose functions are kept, too, to tell which of them grew."""

OURS = ("services/", "headrace/")

Measured = dict[tuple[str, str], Counts]
"""Counts by what was counted and the entrance."""


def write(measured: Measured) -> None:
    """Make these counts the budgets."""
    figures = {
        f"{what}, {entrance}": {name: round(counts.figures[name], 1) for name in TOLERANCES if name in counts.figures}
        for (what, entrance), counts in measured.items()
    }
    found = [measured[key].functions for key in LISTED]
    names = sorted({name for functions in found for name in functions if name.startswith(OURS)})
    functions = {name: [round(one.get(name, 0)) for one in found] for name in names}
    parts = {"figures": figures, "functions": functions}
    FILE.write_text("{\n" + ",\n".join(_format_part(name, part) for name, part in parts.items()) + "\n}\n")


def _format_part(name: str, part: Mapping[str, object]) -> str:
    lines = (f"    {json.dumps(key)}: {json.dumps(value)}" for key, value in part.items())
    return f'  "{name}": {{\n' + ",\n".join(lines) + "\n  }"


def find_excess(measured: Measured) -> list[str]:
    """Return a line for each figure over its budget, with the functions that grew most."""
    known = json.loads(FILE.read_text())
    found: list[str] = []
    for (what, entrance), counts in measured.items():
        key = f"{what}, {entrance}"
        for name, budget in known["figures"][key].items():
            value = counts.figures.get(name)
            if value is not None and value > budget * (1 + TOLERANCES[name]) + 0.5:
                found.append(f"{key}: {value:,.0f} {name}, budget {budget:,.0f}: {_list_grown(known, key, counts)}")
    return found


def _list_grown(known: Mapping[str, Mapping[str, Sequence[float]]], key: str, counts: Counts) -> str:
    keys = [f"{what}, {entrance}" for what, entrance in LISTED]
    if key not in keys:
        return "see the other rows"
    before = {name: calls[keys.index(key)] for name, calls in known["functions"].items()}
    growth = {name: calls - before.get(name, 0) for name, calls in counts.functions.items() if name.startswith(OURS)}
    grown = sorted(((more, name) for name, more in growth.items() if more >= 1), reverse=True)
    return ", ".join(f"{name} +{more:.0f}" for more, name in grown[:20])


def show(measured: Measured) -> Grid:
    grid = Grid("Counts", ("<what", "<entrance", *TOLERANCES))
    for (what, entrance), counts in measured.items():
        grid.rows.append((what, entrance, *(_show_figure(counts.figures.get(name)) for name in TOLERANCES)))
    return grid


def describe_budgets() -> str:
    """Return the budgets as a table in Markdown."""
    known = json.loads(FILE.read_text())["figures"]
    grid = Grid("", ("<what", "<entrance", *TOLERANCES))
    for key, figures in known.items():
        grid.rows.append((*key.split(", ", 1), *(_show_figure(figures.get(name)) for name in TOLERANCES)))
    return grid.written().partition("\n\n")[2].rstrip("\n")


def describe_parts() -> str:
    """Return the Python calls by folder of the suite's functions as a table in Markdown."""
    sums: dict[str, list[int]] = {}
    for name, calls in json.loads(FILE.read_text())["functions"].items():
        first, second, *_ = name.split("/")
        part = f"{first}/{second}" if first == "services" else first
        sums[part] = [*map(sum, zip(sums.get(part, [0] * len(LISTED)), calls, strict=True))]
    grid = Grid("", ("<part", *(f"{what}, {entrance}" for what, entrance in LISTED)))
    for part, calls in sorted(sums.items(), key=lambda item: -item[1][0]):
        grid.rows.append((f"`{part}`", *(f"{count:,}" for count in calls)))
    return grid.written().partition("\n\n")[2].rstrip("\n")


def _show_figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}" if value >= 10 else f"{value:.1f}"
