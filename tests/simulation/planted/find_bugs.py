"""`python -m tests.simulation.planted.find_bugs [SEEDS_MAX] [BUG…]`: in which seed the judges find each planted bug.

JOBS says how many processes search beside each other; empty: one for each core.
"""

from __future__ import annotations

from tests.simulation.fixed_order import start_again

if __name__ == "__main__":
    start_again("tests.simulation.planted.find_bugs")  # before the slow imports below

import os
import sys
from concurrent.futures import ProcessPoolExecutor

from tests.simulation.planted.bugs import BUGS
from tests.simulation.series import say
from tests.simulation.simulate import prepare_process, simulate_seed

SEEDS_MAX = 1000


def find_bug(bug: str, seeds_max: int) -> tuple[int, str]:
    """Return the first seed whose judges find the bug, and what they say; 0: none does."""
    for seed in range(1, seeds_max + 1):
        if problems := simulate_seed(seed, bug=bug).problems:
            return seed, problems[-1]
    return 0, ""


def main() -> int:
    seeds_max = int(sys.argv[1]) if len(sys.argv) > 1 else SEEDS_MAX
    missed, jobs = 0, int(os.environ.get("JOBS", 0)) or os.cpu_count()
    with ProcessPoolExecutor(jobs, initializer=prepare_process) as pool:
        searches = {bug: pool.submit(find_bug, bug, seeds_max) for bug in sys.argv[2:] or BUGS}
        for bug, search in searches.items():
            seed, problem = search.result()
            missed += not seed
            say(f"{bug:22} {f'seed {seed}: {problem[:200]}' if seed else f'NOT FOUND in {seeds_max} seeds'}")
    return min(missed, 1)


if __name__ == "__main__":
    sys.exit(main())
