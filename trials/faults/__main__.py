"""Fail every system call of every service in turn under real work, and judge the outcome: [POINT…].

Tries all points, those of some services and calls, or the named ones. Prints how often each call is made, each
point that breaks something, and a table. A point is named SERVICE:PHASE:CALL:N:FAULT; with the suffix `:on`,
all calls from the n-th on fail for a while. All points take long: with `--journal FILE`, an interrupted series
continues.

A point of `run` takes half a second of CPU. One of `start` takes a second and waits up to 5 s more, because
`headrace up` restarts a service later and later if it dies repeatedly: `--phases start --jobs 8` overlaps the
waits.
"""

import argparse
import asyncio
import random
import sys
import time
from pathlib import Path

from trials.faults.calls import CALLS, PHASES, SERVICES, Point
from trials.faults.judging import BROKEN, Verdict
from trials.faults.series import count_calls, list_points, make_count_table, make_table, try_points

NIGHTLY = ["--sample", "200", "--jobs", "4"]


def main(arguments: list[str]) -> int:
    return asyncio.run(try_faults(parse_arguments(arguments)))


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m trials faults", description=__doc__)
    parser.add_argument("points", nargs="*", type=Point.parse)
    parser.add_argument("--services", nargs="+", default=SERVICES, choices=SERVICES)
    parser.add_argument("--phases", nargs="+", default=PHASES, choices=PHASES)
    parser.add_argument("--calls", nargs="+", default=CALLS, choices=CALLS)
    parser.add_argument("--jobs", type=int, default=2, help="suites at a time")
    parser.add_argument("--sample", type=int, help="take so many of the points only, by --seed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--journal", type=Path, help="leave out the points that held there, and add those tried now")
    parser.add_argument("--verbose", action="store_true", help="print every point")
    return parser.parse_args(arguments)


async def try_faults(arguments: argparse.Namespace) -> int:
    points: list[Point] = arguments.points
    if not points:
        counts = await count_calls()
        say(make_count_table(counts))
        points = list_points(counts, arguments.services, arguments.phases, arguments.calls)
        if arguments.sample:
            points = random.Random(arguments.seed).sample(points, min(arguments.sample, len(points)))
    journal: Path | None = arguments.journal
    held = read_journal(journal) if journal else set[str]()
    points = [point for point in points if str(point) not in held]
    say(f"{len(points)} points")
    started_at = time.monotonic()

    def tell(verdict: Verdict) -> None:
        if journal:
            with journal.open("a") as file:
                file.write(f"{verdict.point} {verdict.result}\n")
        if verdict.problems or arguments.verbose or arguments.points:
            say(f"{verdict.point} {verdict.where}: {verdict.result}")
        for problem in verdict.problems:
            say(f"    {problem}")

    verdicts = await try_points(points, arguments.jobs, tell)
    say(make_table(verdicts))
    broken = [str(verdict.point) for verdict in verdicts if verdict.problems]
    say(f"{len(verdicts)} points in {time.monotonic() - started_at:.0f} s")
    say(f"{len(broken)} of {len(verdicts)} points broke something: python -m trials faults {' '.join(broken[:20])}")
    return 1 if broken else 0


def read_journal(journal: Path) -> set[str]:
    """Return the names of the points that passed when last tried."""
    lines = journal.read_text().splitlines() if journal.exists() else []
    results = dict(line.split(" ", 1) for line in lines)
    return {name for name, result in results.items() if result != BROKEN}


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
