"""The judges see bugs that are put around the services: some of the list, in the first worlds."""

import subprocess
import sys

import pytest

OTHERS = ("unasked call", "old state", "left task")


@pytest.mark.parametrize("bugs", [("lost result",), pytest.param(OTHERS, marks=pytest.mark.nightly)], ids=" ".join)
def test_the_judges_see_what_is_broken(bugs: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "trials.simulation.planted.find_bugs", *bugs, "--seeds", "10", "--search"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" seed ") == len(bugs)
