"""Writes what series of simulated worlds have shown into docs/reliability.md: counts, which no busy machine changes.

`python -m trials.simulation.report` does it again, of what is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from textwrap import wrap

from trials.simulation.ledger import Record, add_up, name_ranges, name_release, read_all
from trials.simulation.plan import FACADE, GATEWAY, KINDS, MEMORY, ORCHESTRATOR, PHASES, POSTGRES, TOOLS, USER
from trials.support.reliability import write_region

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

PROBLEM_CHARS = 160

SERVICES = (MEMORY, ORCHESTRATOR, GATEWAY, TOOLS, FACADE, POSTGRES, USER)


def write_report(records: Sequence[Record]) -> None:
    """Put what is kept of all series into the page."""
    write_region("series", "\n".join(describe_series(records)) + "\n")


def describe_series(records: Sequence[Record]) -> Iterator[str]:
    """Yield a row for each state of the code, and what those of the newest release have met together."""
    releases = [name_release(record) for record in records]
    yield "| release | commit | of | seeds | worlds | simulated hours | faults that hit | broke a promise |"
    yield "|---|---|---|---|--:|--:|--:|--:|"
    for release, record in zip(releases, records, strict=True):
        state = f"{release} | {record.commit} | {record.when[:10]} | {name_ranges(record.seeds)}"
        yield f"| {state} | {_measure([record])} |"
    if len(records) > 1:
        yield f"| all | | | | {_measure(records)} |"
    yield ""
    for record in records:
        for seed, problem in sorted(record.failed.items()):
            yield f"- {record.commit}, seed {seed}: {problem.splitlines()[0][:PROBLEM_CHARS].replace('|', '/')}"
    if any(record.failed for record in records):
        yield ""
    newest = [record for release, record in zip(releases, records, strict=True) if release == releases[-1]]
    worlds = sum(len(record.seeds) for record in newest)
    yield f"Faults that hit in the {worlds} worlds of {releases[-1]} code, by what an open run did then:"
    yield ""
    yield from _describe_hits(*add_up(newest), worlds)


def _measure(records: Sequence[Record]) -> str:
    """Return cells with what the worlds of some states are together."""
    bites, _ = add_up(records)
    hours = sum(record.simulated_s for record in records) / 3600
    worlds, failed = (sum(map(len, kept)) for kept in zip(*((one.seeds, one.failed) for one in records), strict=True))
    return f"{worlds} | {hours:.1f} | {bites.total()} | {failed}"


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
    yield from wrap(f"What came of them and beside them: {', '.join(others)}.", 120)


def _mark(kind: str, service: str, phase: str) -> str:
    return "\\*" if (kind, service, phase) in UNREACHABLE else ""


def _describe_coverage(bites: Counter[tuple[str, str, str]], worlds: int) -> str:
    """Say which cells would be met less than a hundred times in ten thousand seeds."""
    enough = worlds / PER
    cells = [(kind, service, phase) for kind in KINDS for service in KINDS[kind] for phase in PHASES]
    seldom = [cell for cell in cells if bites[cell] < enough and cell not in UNREACHABLE]
    told = "; ".join(f"{' '.join(cell)} ({bites[cell]})" for cell in seldom)
    return f"Of {len(cells)} cells these were met in fewer than one of {PER} worlds: {told or 'none'}."


if __name__ == "__main__":
    write_report(read_all())
