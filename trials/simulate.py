"""Run the services in simulated worlds with kills, cuts and failing peers: [SEED or FIRST-LAST] [--help]."""

import datetime

from trials.support.commands import run_python

NIGHTLY = ["tonight"]

WORLDS_A_NIGHT = 500


def main(arguments: list[str]) -> int:
    """Run the simulation in a separate process with a fixed hash seed. `tonight` is other seeds each day."""
    if arguments[:1] == ["tonight"]:
        first = datetime.datetime.now(datetime.UTC).date().toordinal() % 1000 * WORLDS_A_NIGHT + 1
        arguments = [f"{first}-{first + WORLDS_A_NIGHT - 1}", *arguments[1:]]
        print(f"NOTICE: worlds {arguments[0]}", flush=True)
    return run_python("trials.simulation", *(arguments or ["1-10000"]))
