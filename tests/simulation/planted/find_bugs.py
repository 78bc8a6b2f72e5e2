"""`python -m tests.simulation.planted.find_bugs [BUG…]`: in which seed the judges find each planted bug, and how long
the story is of the smallest world that shows it; `--write` keeps that in docs/reliability.md.
"""

from __future__ import annotations

from tests.simulation.fixed_order import start_again

if __name__ == "__main__":
    start_again("tests.simulation.planted.find_bugs")  # before the slow imports below

import argparse
import os
import re
import sys
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from tests.simulation.plan import make_plan
from tests.simulation.planted.bugs import BUGS
from tests.simulation.report import PAGE
from tests.simulation.series import say
from tests.simulation.shrink import shrink
from tests.simulation.simulate import prepare_process, simulate, simulate_seed

SEEDS_MAX = 1000

STORY_LINES_MAX = 30
"""A person reads that many."""


@dataclass(frozen=True, slots=True)
class Found:
    seed: int = 0
    """0: the judges find nothing."""
    problem: str = ""


def find_bug(bug: str, seeds_max: int) -> Found:
    """Search the seeds in order."""
    for seed in range(1, seeds_max + 1):
        if problems := simulate_seed(seed, bug=bug).problems:
            return Found(seed, problems[-1])
    return Found()


def count_lines(bug: str, seed: int) -> int:
    """Return the length of the story of the smallest world found that shows the bug."""
    smallest = shrink(make_plan(seed), lambda plan: bool(simulate(plan, bug=bug).problems))
    return len(simulate(smallest, bug=bug).story)


def write_row(bug: str, seed: int, lines: int | None) -> None:
    """Put what is known of a bug into its row of the page; `lines` is None before the world was made smaller."""
    row = f"| {bug} | {seed or f'none of {SEEDS_MAX}'} | {'' if lines is None else lines} |"
    PAGE.write_text(re.sub(rf"(?m)^\| {bug} \|.*$", row, PAGE.read_text()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.planted.find_bugs", description=__doc__)
    parser.add_argument("bugs", nargs="*", choices=[[], *BUGS], help="all, if none is named")
    parser.add_argument("--seeds", type=int, default=SEEDS_MAX, help="how many are searched for each")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes that search beside each other")
    parser.add_argument("--write", action="store_true", help="keep what is found in docs/reliability.md")
    given = parser.parse_args()
    missed = 0
    with ProcessPoolExecutor(given.jobs, initializer=prepare_process) as pool:
        searches = {pool.submit(find_bug, bug, given.seeds): bug for bug in given.bugs or BUGS}
        shrinks: dict[Future[int], tuple[str, int]] = {}
        for search in as_completed(searches):
            found, bug = search.result(), searches[search]
            missed += not found.seed
            say(f"{bug:22} {f'seed {found.seed}: {found.problem[:160]}' if found.seed else 'NOT FOUND'}")
            if given.write:
                write_row(bug, found.seed, None)
            if found.seed:
                shrinks[pool.submit(count_lines, bug, found.seed)] = bug, found.seed
        for shrunk in as_completed(shrinks):
            bug, seed = shrinks[shrunk]
            missed += shrunk.result() > STORY_LINES_MAX
            say(f"{bug:22} seed {seed}: {shrunk.result()} lines")
            if given.write:
                write_row(bug, seed, shrunk.result())
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
