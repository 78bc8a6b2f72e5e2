"""Run the services in simulated worlds with kills, cuts and failing peers: [SEED or FIRST-LAST] [--help]."""

from __future__ import annotations

from trials.support.commands import run_python

NIGHTLY = ["1-2000"]


def main(arguments: list[str]) -> int:
    """In a process of its own, whose hashes are in a fixed order."""
    return run_python("trials.simulation", *(arguments or ["1-10000"]))
