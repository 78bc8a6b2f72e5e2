"""Adds up series of simulated worlds: sums for docs/reliability.md; `python -m trials.simulation.report` prints all.

They are counts, which do not depend on the machine's speed.
"""

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from trials.simulation.ledger import Record, add_up, name_release, read_all
from trials.simulation.plan import FACADE, GATEWAY, KINDS, MEMORY, ORCHESTRATOR, PHASES, POSTGRES, TOOLS, USER
from trials.support.reliability import read_region, write_region

UNREACHABLE = {
    ("tool", TOOLS, "gate"): "a call that waits for a person does not run yet",
    ("model", GATEWAY, "gate"): "a run that waits for a person asks no model",
    **{
        (kind, TOOLS, "compaction"): "nothing asks the tools service during a compaction"
        for kind in ("part", "slow", "tool")
    },
}
"""Cells that a world can meet only while two runs are open at once, with the reason."""

PER = 100
"""Number of seeds in which each cell should be met once: a hundred times in ten thousand."""

PROBLEM_CHARS = 160

SERVICES = (MEMORY, ORCHESTRATOR, GATEWAY, TOOLS, FACADE, POSTGRES, USER)


def write_report(records: Sequence[Record]) -> None:
    """Write the totals of each release into the page; keep the rows of releases that `records` lack."""
    write_region("series", "".join(f"{line}\n" for line in describe_releases(records, read_region("series"))))


def describe_releases(records: Sequence[Record], before: str) -> Iterator[str]:
    """Yield a table with a row for each release; `before` is the previous table."""
    yield "| release | states of the code | worlds | simulated hours | faults that hit | broke a promise |"
    yield "|---|--:|--:|--:|--:|--:|"
    rows = {line.split("|")[1].strip(): line for line in before.splitlines()[2:]}
    for release, kept in _sort_by_release(records).items():
        bites, _ = add_up(kept)
        hours = sum(record.simulated_s for record in kept) / 3600
        worlds, failed = sum(len(record.seeds) for record in kept), sum(len(record.failed) for record in kept)
        rows[release] = f"| {release} | {len(kept)} | {worlds} | {hours:.1f} | {bites.total()} | {failed} |"
    yield from rows.values()


def describe_series(records: Sequence[Record]) -> Iterator[str]:
    """Yield the faults of the worlds of each release, and the broken promises."""
    for release, kept in _sort_by_release(records).items():
        worlds = sum(len(record.seeds) for record in kept)
        yield f"Faults that hit in the {worlds} worlds of {release} code, by what an open run did then:"
        yield ""
        yield from _describe_hits(*add_up(kept), worlds)
        yield ""
        for record in kept:
            for seed, problem in sorted(record.failed.items()):
                yield f"- {record.commit}, seed {seed}: {problem.splitlines()[0][:PROBLEM_CHARS]}"


def _sort_by_release(records: Sequence[Record]) -> dict[str, list[Record]]:
    releases: dict[str, list[Record]] = {}
    for record in records:
        releases.setdefault(name_release(record), []).append(record)
    return releases


def _describe_hits(bites: Counter[tuple[str, str, str]], counts: Counter[str], worlds: int) -> Iterator[str]:
    yield f"| fault | of | {' | '.join(PHASES)} |"
    yield f"|---|---|{'--:|' * len(PHASES)}"
    for kind in dict.fromkeys(KINDS):
        for service in SERVICES:
            if service in KINDS[kind]:
                shown = (str(bites[kind, service, phase]) + _mark(kind, service, phase) for phase in PHASES)
                yield f"| {kind} | {service} | {' | '.join(shown)} |"
    yield ""
    yield from wrap(f"\\* {'; '.join(dict.fromkeys(UNREACHABLE.values()))}, but where two runs go on at once.", 120)
    yield ""
    yield from wrap(_describe_coverage(bites, worlds), 120)
    yield ""
    others = (f"{kind} {count}" for kind, count in sorted(counts.items()))
    yield from wrap(f"What came of them, and what else happened: {', '.join(others)}.", 120)


def _mark(kind: str, service: str, phase: str) -> str:
    return "\\*" if (kind, service, phase) in UNREACHABLE else ""


def _describe_coverage(bites: Counter[tuple[str, str, str]], worlds: int) -> str:
    """Describe the cells that would be met fewer than a hundred times in ten thousand seeds."""
    enough = worlds / PER
    cells = [(kind, service, phase) for kind in KINDS for service in KINDS[kind] for phase in PHASES]
    seldom = [cell for cell in cells if bites[cell] < enough and cell not in UNREACHABLE]
    rare = "; ".join(f"{' '.join(cell)} ({bites[cell]})" for cell in seldom)
    return f"Of {len(cells)} cells these were met in fewer than one of {PER} worlds: {rare or 'none'}."


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in describe_series(read_all()))
