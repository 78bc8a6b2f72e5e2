"""`python -m trials.simulation FIRST-LAST`: simulate worlds on all cores, and report those that broke a promise.

A failing seed is simulated again with `--story`, which prints its events. `--twice` simulates each seed in two
processes and compares the traffic between the services, byte for byte.
"""

from __future__ import annotations

from trials.simulation.fixed_order import start_again

if __name__ == "__main__":
    start_again("trials.simulation")  # before the slow imports below

import argparse
import os
import sys

from trials.simulation.plan import make_plan
from trials.simulation.planted.bugs import BUGS
from trials.simulation.schedule_plan import make_schedule_plan
from trials.simulation.series import Series, run_series, say
from trials.simulation.shrink import shrink
from trials.simulation.simulate import prepare_process, simulate


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m trials.simulation", description=__doc__)
    parser.add_argument("seeds", help="SEED or FIRST-LAST")
    parser.add_argument("--story", action="store_true", help="print what happens, in this process")
    parser.add_argument("--trace", action="store_true", help="also print all traffic between the services")
    parser.add_argument("--shrink", action="store_true", help="look for a smaller failing plan, and print its story")
    parser.add_argument("--twice", action="store_true", help="simulate each seed in two processes and compare")
    parser.add_argument("--bug", choices=BUGS, default="", help="plant a bug, which the judges must find")
    parser.add_argument("--schedules", action="store_true", help="worlds of schedules and kills alone")
    parser.add_argument("--write", action="store_true", help="keep the result in docs/reliability.md, as it goes")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="parallel processes")
    given = parser.parse_args()
    first, _, last = given.seeds.partition("-")
    seeds = range(int(first), int(last or first) + 1)
    if given.write and (given.bug or given.schedules):
        parser.error("--write keeps worlds as they are: without --bug, without --schedules")
    make = make_schedule_plan if given.schedules else make_plan
    if not (given.story or given.trace or given.shrink):
        return run_series(Series(seeds, given.jobs, given.twice, given.bug, make, given.write))
    prepare_process()
    failed = 0
    for seed in seeds:
        plan = make(seed)
        if given.shrink:
            plan = shrink(plan, lambda smaller: bool(simulate(smaller, bug=given.bug).problems))
        result = simulate(plan, bug=given.bug, traces=given.trace)
        say(*(result.traced if given.trace else result.story), *result.describe())
        failed += bool(result.problems)
    return min(failed, 1)


sys.exit(main())
