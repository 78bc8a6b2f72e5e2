"""Runs many seeds on all cores: shows progress and a summary, and counts each fault."""

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context

from trials.simulation.ledger import Record, open_record, read_all
from trials.simulation.plan import Plan, make_plan
from trials.simulation.processes import run_in_processes
from trials.simulation.report import write_report
from trials.simulation.simulate import Result, prepare_process, simulate_seed

SEEDS_PER_PROCESS = 20
REPORT_EVERY_S = 10.0


@dataclass(frozen=True, slots=True)
class Series:
    seeds: Sequence[int]
    jobs: int = 2
    is_twice: bool = False
    """Whether each seed is simulated in two processes, which must have the same digest."""
    bug: str = ""
    """Name of a planted bug."""
    make: Callable[[int], Plan] = make_plan
    """Makes a seed's plan."""
    is_written: bool = False
    """Whether the result is kept, in build/series and docs/reliability.md; seeds with a kept result are not
    simulated again.
    """


@dataclass
class Summary:
    began_s: float = field(default_factory=time.perf_counter)
    digests: dict[int, str] = field(default_factory=dict[int, str])
    counts: Counter[str] = field(default_factory=Counter[str])
    bites: Counter[tuple[str, str, str]] = field(default_factory=Counter[tuple[str, str, str]])
    simulated_s: float = 0.0
    failed: list[Result] = field(default_factory=list[Result])

    def add(self, result: Result) -> None:
        known = self.digests.setdefault(result.seed, result.digest)
        if known != result.digest:
            result.problems.append(f"the seed went another way the second time: {known}, {result.digest}")
        self.counts += result.counts
        self.bites += result.bites
        self.simulated_s += result.simulated_s
        if result.problems:
            self.failed.append(result)
            say(*result.describe())

    def describe(self) -> Iterator[str]:
        spent_s = time.perf_counter() - self.began_s
        count = len(self.digests)
        yield (
            f"{count} seeds in {spent_s:.0f} s ({count / spent_s * 3600:.0f} an hour),"
            f" {self.simulated_s / 3600:.1f} simulated hours, {self.bites.total()} faults that hit,"
            f" {len(self.failed)} broke a promise{''.join(f' {result.seed}' for result in self.failed[:20])}"
        )


def run_series(series: Series) -> int:
    """Simulate all seeds; return 1 if one broke a promise."""
    record = open_record() if series.is_written else None
    summary = Summary()
    reported_s = summary.began_s
    seeds = [seed for seed in series.seeds if record is None or seed not in record.seeds]
    parts = [seeds[at : at + SEEDS_PER_PROCESS] for at in range(0, len(seeds), SEEDS_PER_PROCESS)]
    tasks = [partial(_simulate_all, part, series) for part in parts]
    if series.is_twice:
        tasks += [partial(_simulate_all, part[::-1], series, shakes=True) for part in parts]
    else:
        prepare_process()
    # In a comparison, objects of the two processes must have different addresses.
    context = get_context("spawn") if series.is_twice else get_context("fork")
    for results in run_in_processes(context, tasks, series.jobs):
        for result in results:
            summary.add(result)
        if record is not None:
            _keep(record, results)
        if time.perf_counter() - reported_s > REPORT_EVERY_S:
            reported_s = time.perf_counter()
            say(*summary.describe())
    say(*summary.describe())
    say(*(f"{count:8}  {' '.join(key)}" for key, count in sorted(summary.bites.items())))
    say(*(f"{count:8}  {kind}" for kind, count in sorted(summary.counts.items())))
    if record is not None:
        write_report(read_all())
    return min(len(summary.failed), 1)


def _keep(record: Record, results: Sequence[Result]) -> None:
    for result in results:
        record.add(result)
    record.save()


def _simulate_all(seeds: Sequence[int], series: Series, *, shakes: bool = False) -> list[Result]:
    if series.is_twice:
        prepare_process()
    return [
        simulate_seed(seed, make=series.make, bug=series.bug, is_exact=series.is_twice, shakes=shakes) for seed in seeds
    ]


def say(*lines: str) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)
    sys.stdout.flush()
