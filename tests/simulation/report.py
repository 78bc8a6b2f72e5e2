"""Writes the last series of simulated worlds into docs/reliability.md: counts, which no busy machine changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from tests.simulation.plan import FACADE, GATEWAY, KINDS, MEMORY, ORCHESTRATOR, PHASES, POSTGRES, TOOLS, USER

if TYPE_CHECKING:
    from tests.simulation.series import Summary

PAGE = Path("docs/reliability.md")
BEGIN, END = "<!-- series -->\n", "<!-- end -->\n"

UNREACHABLE = {
    ("tool", TOOLS, "gate"): "a call that waits for a person does not run yet",
    ("model", GATEWAY, "gate"): "a run that waits for a person asks no model",
    **{
        (kind, TOOLS, "compaction"): "nothing asks the tools service during a compaction"
        for kind in ("part", "slow", "tool")
    },
}
"""Cells that no world can meet but where two runs go on at once, with the reason."""

PER = 100
"""Seeds in which each cell is to be met once: a hundred times in ten thousand."""

SERVICES = (MEMORY, ORCHESTRATOR, GATEWAY, TOOLS, FACADE, POSTGRES, USER)


def write_report(summary: Summary) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, behind = rest.partition(END)
    PAGE.write_text(before + BEGIN + "\n".join(describe_series(summary)) + "\n" + END + behind)


def describe_series(summary: Summary) -> Iterator[str]:
    seeds = sorted(summary.digests)
    yield (
        f"Seeds {seeds[0]} to {seeds[-1]}: {summary.simulated_s / 3600:.1f} simulated hours,"
        f" {len(summary.failed)} worlds that broke a promise."
    )
    yield ""
    yield f"| fault | of | {' | '.join(PHASES)} |"
    yield f"|---|---|{'--:|' * len(PHASES)}"
    for kind in dict.fromkeys(KINDS):
        for service in SERVICES:
            if service in KINDS[kind]:
                shown = (str(summary.bites[kind, service, phase]) + _mark(kind, service, phase) for phase in PHASES)
                yield f"| {kind} | {service} | {' | '.join(shown)} |"
    yield ""
    yield from wrap(f"\\* {'; '.join(dict.fromkeys(UNREACHABLE.values()))}, but where two runs go on at once.", 120)
    yield ""
    yield from wrap(_describe_coverage(summary), 120)
    yield ""
    others = (f"{kind} {count}" for kind, count in sorted(summary.counts.items()))
    yield from wrap(f"What came of them and beside them: {', '.join(others)}.", 120)


def _mark(kind: str, service: str, phase: str) -> str:
    return "\\*" if (kind, service, phase) in UNREACHABLE else ""


def _describe_coverage(summary: Summary) -> str:
    """Say which cells would be met less than a hundred times in ten thousand seeds."""
    enough = len(summary.digests) / PER
    cells = [(kind, service, phase) for kind in KINDS for service in KINDS[kind] for phase in PHASES]
    seldom = [cell for cell in cells if summary.bites[cell] < enough and cell not in UNREACHABLE]
    told = "; ".join(f"{' '.join(cell)} ({summary.bites[cell]})" for cell in seldom)
    return f"Of {len(cells)} cells these were met in fewer than one of {PER} worlds: {told or 'none'}."
