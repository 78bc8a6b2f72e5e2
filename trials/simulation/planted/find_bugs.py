"""Finds the seed in which the judges find each planted bug, and the length of the smallest world's story that shows it.

Usage: `python -m trials.simulation.planted.find_bugs [BUG…]`; `--write` writes the results to docs/reliability.md.
"""

from trials.simulation.fixed_order import start_again

if __name__ == "__main__":
    start_again("trials.simulation.planted.find_bugs")  # before the slow imports below

import argparse
import os
import re
import sys
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context

from trials.simulation.plan import make_plan
from trials.simulation.planted.bugs import BUGS
from trials.simulation.processes import run_in_processes
from trials.simulation.series import say
from trials.simulation.shrink import shrink
from trials.simulation.simulate import prepare_process, simulate, simulate_seed
from trials.support.reliability import PAGE

SEEDS_MAX = 1000

STORY_LINES_MAX = 30
"""Longest story that a person is expected to read."""

SHRUNK_MAX = 5
"""Worlds to shrink for one bug, until a story is short enough."""


@dataclass(frozen=True, slots=True)
class Found:
    bug: str
    seed: int = 0
    """Seed in which the judges find the bug; 0: they do not find it."""
    problem: str = ""
    lines: int = 0
    """Length of the shortest story of a world that shows the bug; 0: no world was shrunk."""


def find_bug(bug: str, seeds_max: int, shrinks: bool) -> Found:
    """Search the seeds in order; if `shrinks`, shrink worlds that show the bug, until a story is short."""
    first, lines = Found(bug), list[int]()
    for seed in range(1, seeds_max + 1):
        if not (problems := simulate_seed(seed, bug=bug).problems):
            continue
        first = first if first.seed else Found(bug, seed, problems[-1])
        if not shrinks:
            return first
        smallest = shrink(make_plan(seed), lambda plan: bool(simulate(plan, bug=bug).problems))
        lines.append(len(simulate(smallest, bug=bug).story))
        if lines[-1] <= STORY_LINES_MAX or len(lines) == SHRUNK_MAX:
            break
    return replace(first, lines=min(lines, default=0))


def write_row(found: Found) -> None:
    """Write the result for a bug into its row of the page."""
    row = f"| {found.bug} | {found.seed or f'none of {SEEDS_MAX}'} | {found.lines or ''} |"
    PAGE.write_text(re.sub(rf"(?m)^\| {found.bug} \|.*$", row, PAGE.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trials.simulation.planted.find_bugs", description=__doc__)
    parser.add_argument("bugs", nargs="*", choices=[[], *BUGS], help="all, if none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many are searched for each")
    parser.add_argument("--search", action="store_true", help="make no world smaller")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="number of parallel search processes")
    parser.add_argument("--write", action="store_true", help="write the results to docs/reliability.md")
    given = parser.parse_args()
    missed = 0
    prepare_process()
    tasks = [partial(find_bug, bug, given.seeds, not given.search) for bug in given.bugs or BUGS]
    for found in run_in_processes(get_context("fork"), tasks, given.jobs):
        missed += not found.seed or found.lines > STORY_LINES_MAX
        where = f"seed {found.seed}, {found.lines} lines: {found.problem[:160]}" if found.seed else "NOT FOUND"
        say(f"{found.bug:22} {where}")
        if given.write:
            write_row(found)
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
