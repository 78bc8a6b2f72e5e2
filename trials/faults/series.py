"""Tries all points, with several suites in parallel."""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from trials.faults.calls import FAULTS, PHASES, SERVICES, Point
from trials.faults.judging import BROKEN, Verdict, restart, try_point
from trials.faults.workload import Rig, Work, running_rig

Counts = dict[tuple[str, str], dict[str, int]]
"""Number of calls by service, phase and kind."""

COUNTED = 3
"""How often the work is counted: threads and sockets make the counts vary slightly."""

POINTS_MAX = 200
"""Maximum number of points per suite, so that its folders stay small."""


LEAKED_MAX = 12
"""Number of additional open files a service may have, because connections come and go."""


async def count_calls() -> Counts:
    """Count how often each service makes each call in each phase."""
    with tempfile.TemporaryDirectory(prefix="hf-") as folder:
        async with running_rig(Path(folder)) as rig:
            found: Counts = {(service, "run"): {} for service in SERVICES}
            for _ in range(COUNTED):
                rig.faults.count()
                await rig.work(Work())
                rig.faults.stop()
                for service, counts in rig.faults.counts.items():
                    known = found[service, "run"]
                    known |= {call: max(number, known.get(call, 0)) for call, number in counts.items()}
            for service in SERVICES:
                rig.faults.count()
                await restart(rig, service)
                rig.faults.stop()
                found[service, "start"] = rig.faults.counts[service]
    return found


def list_points(counts: Counts, services: Iterable[str], phases: Iterable[str], calls: Iterable[str]) -> list[Point]:
    """Return the points, alternating between services: one that is killed again soon is restarted later and later."""
    turns = (
        [
            Point(service, phase, call, n, fault)
            for call in calls
            for n in range(1, counts[service, phase][call] + 1)
            for fault in FAULTS[call]
        ]
        for phase in phases
        for service in services
    )
    return [point for points in zip_longest(*turns) for point in points if point]


async def try_points(points: Sequence[Point], jobs: int, tell: Callable[[Verdict], None]) -> list[Verdict]:
    """Try all points in order, distributed over the suites."""
    verdicts: list[Verdict] = []
    left = list(reversed(points))

    async def take() -> None:
        while left:
            with tempfile.TemporaryDirectory(prefix="hf-", ignore_cleanup_errors=True) as folder:
                async with running_rig(Path(folder)) as rig:
                    await take_some(rig)

    async def take_some(rig: Rig) -> None:
        before = rig.count_open_files()
        for _ in range(POINTS_MAX):
            if not left:
                return
            verdict = await try_point(rig, left.pop())
            if leaks := find_leaks(before, rig.count_open_files()):
                verdict = replace(verdict, result=BROKEN, problems=(*verdict.problems, *leaks))
            tell(verdict)
            verdicts.append(verdict)
            if verdict.problems:
                return

    async with asyncio.TaskGroup() as group:
        for _ in range(jobs):
            group.create_task(take())
    return verdicts


def find_leaks(before: Mapping[int, int], after: Mapping[int, int]) -> list[str]:
    return [
        f"process {pid} had {before[pid]} open files and has {number}"
        for pid, number in after.items()
        if pid in before and number > before[pid] + LEAKED_MAX
    ]


def make_count_table(counts: Counts) -> str:
    rows = [
        f"{service:13} {phase:6} " + "  ".join(f"{call} {number}" for call, number in calls.items() if number)
        for (service, phase), calls in counts.items()
    ]
    return "\n".join(rows)


def make_table(verdicts: Iterable[Verdict]) -> str:
    """Return a table of points by service, phase, call, fault and result."""
    results = Counter(
        (
            SERVICES.index(each.point.service),
            PHASES.index(each.point.phase),
            f"{each.point.call} {each.point.fault}",
            each.result,
        )
        for each in verdicts
    )
    rows: dict[tuple[int, int, str], list[str]] = {}
    for (service, phase, what, result), number in sorted(results.items()):
        rows.setdefault((service, phase, what), []).append(f"{result} {number}")
    return "\n".join(
        f"{SERVICES[service]:13} {PHASES[phase]:6} {what:18} {', '.join(cells)}"
        for (service, phase, what), cells in rows.items()
    )
