"""Kill owners of runs and parts of a cluster at random, fail every system call, and check the answers to readers."""

import argparse
from random import randrange

from trials.support.commands import run_python, worst


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m trials soak", description=__doc__)
    parser.add_argument("--rounds", default="1000", help="kills at any event")
    parser.add_argument("--cluster-rounds", default="200")
    parser.add_argument("--connections", default="100000", help="idle ones of one address")
    given = parser.parse_args(arguments)
    soaked: list[tuple[dict[str, str], tuple[str, ...]]] = [
        ({"HEADRACE_SOAK_ROUNDS": given.rounds}, ("tests/orchestrator/cluster/test_crashes.py", "-k", "any_event")),
        (
            {
                "CLUSTER_ROUNDS": given.cluster_rounds,
                "CLUSTER_RUNS": "50",
                "CLUSTER_SEED": str(randrange(1, 1_000_000)),
            },
            ("tests/cluster/test_chaos.py",),
        ),
        ({"HOSTILE_CONNECTIONS": given.connections}, ("tests/hostile/test_connections.py",)),
        ({"HEADRACE_CHATS_MAX": "200"}, ("tests/memory/context/window/test_any_chat.py",)),
        ({"TOOLS_AWAY_S": "30"}, ("tests/e2e/test_tools_away.py",)),
        ({"FULL_DISK_S": "60"}, ("tests/e2e/test_full_disk.py",)),
    ]
    code = worst(run_python("pytest", "-q", *tests, **settings) for settings, tests in soaked)
    return worst((code, run_python("trials", "faults")))
