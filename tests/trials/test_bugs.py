"""The judges see bugs that are put around the services: some of the list, in the first worlds."""

from __future__ import annotations

import subprocess
import sys

BUGS = ("lost result", "unasked call", "old state", "left task")


def test_the_judges_see_what_is_broken() -> None:
    command = [sys.executable, "-m", "trials.simulation.planted.find_bugs", *BUGS, "--seeds", "10", "--search"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" seed ") == len(BUGS)
