"""Writes the last series of simulated worlds into docs/reliability.md: counts, which no busy machine changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING

from tests.simulation.plan import GATEWAY, KINDS, MEMORY, ORCHESTRATOR, PHASES, TOOLS, USER

if TYPE_CHECKING:
    from tests.simulation.series import Summary

PAGE = Path("docs/reliability.md")
BEGIN, END = "<!-- series -->\n", "<!-- end -->\n"

SERVICES = (MEMORY, ORCHESTRATOR, GATEWAY, TOOLS, USER)


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
            if any(counts := [summary.bites[kind, service, phase] for phase in PHASES]):
                yield f"| {kind} | {service} | {' | '.join(str(count or '') for count in counts)} |"
    yield ""
    others = (f"{kind} {count}" for kind, count in sorted(summary.counts.items()))
    yield from wrap(f"What came of them and beside them: {', '.join(others)}.", 120)
