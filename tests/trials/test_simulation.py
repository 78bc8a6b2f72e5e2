"""Some worlds, each in two processes: nothing is lost in them, and a seed says everything about its world."""

import subprocess
import sys

import pytest


@pytest.mark.nightly
def test_each_time_of_a_schedule_is_begun_once_or_told_whoever_is_killed() -> None:
    command = [sys.executable, "-m", "trials.simulation", "--schedules"]
    done = subprocess.run([*command, "1-2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broke a promise" in done.stdout
    planted = subprocess.run([*command, "1", "--bug", "forgotten time"], capture_output=True, text=True)
    assert planted.returncode == 1, "the judges see what is not kept"


@pytest.mark.parametrize("seeds", ["1-3", pytest.param("4-12", marks=pytest.mark.nightly)])
def test_no_world_breaks_a_promise_and_a_seed_gives_the_same_bytes(seeds: str) -> None:
    command = [sys.executable, "-m", "trials.simulation", seeds, "--twice"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broke a promise" in done.stdout
