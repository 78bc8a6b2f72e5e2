"""The environments of the models' judges, and the programs that run in them."""

from __future__ import annotations

from pathlib import Path

from tests.judges.environments import find_python_environment

LISTS = Path(__file__).with_name("environments")
PROGRAMS = Path(__file__).with_name("programs")


def make_environment(name: str) -> Path:
    """Return the Python of the environment that has what environments/NAME.txt lists."""
    return find_python_environment(name, LISTS / f"{name}.txt")
