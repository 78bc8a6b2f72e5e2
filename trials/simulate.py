"""Run the services in simulated worlds with kills, cuts and failing peers: [SEED or FIRST-LAST] [--help]."""

from __future__ import annotations

from trials.support.commands import run_python

NIGHTLY = ["1-2000"]


def main(arguments: list[str]) -> int:
    """Run the simulation in a separate process with a fixed hash seed."""
    return run_python("trials.simulation", *(arguments or ["1-10000"]))
