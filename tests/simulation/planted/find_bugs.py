"""`python -m tests.simulation.planted.find_bugs [SEEDS_MAX] [BUG…]`: in which seed the judges find each planted bug,
and how long the story is of the smallest world that shows it.

JOBS says how many processes search beside each other; empty: one for each core.
"""

from __future__ import annotations

from tests.simulation.fixed_order import start_again

if __name__ == "__main__":
    start_again("tests.simulation.planted.find_bugs")  # before the slow imports below

import os
import sys
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from tests.simulation.plan import make_plan
from tests.simulation.planted.bugs import BUGS
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


def main() -> int:
    seeds_max = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS_MAX
    missed, jobs = 0, int(os.environ.get("JOBS", 0)) or os.cpu_count()
    with ProcessPoolExecutor(jobs, initializer=prepare_process) as pool:
        searches = {pool.submit(find_bug, bug, seeds_max): bug for bug in sys.argv[2:] or BUGS}
        shrinks: dict[Future[int], str] = {}
        for search in as_completed(searches):
            found, bug = search.result(), searches[search]
            missed += not found.seed
            say(f"{bug:22} {f'seed {found.seed}: {found.problem[:160]}' if found.seed else 'NOT FOUND'}")
            if found.seed:
                shrinks[pool.submit(count_lines, bug, found.seed)] = f"| {bug} | {found.seed} |"
        for shrunk in as_completed(shrinks):
            missed += shrunk.result() > STORY_LINES_MAX
            say(f"{shrinks[shrunk]} {shrunk.result()} |")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
