"""Golden runs: the recorded runs of the examples come about again, event by event."""

from __future__ import annotations

import subprocess
import sys

from tests.golden.__main__ import CASSETTES, RUNS

REPLAY = (sys.executable, "-m", "headrace.cli", "replay")


def replay(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*REPLAY, *arguments), capture_output=True, text=True, timeout=300, check=False)


def test_the_golden_runs_come_about_again() -> None:
    paths = [str(CASSETTES / f"{name}.cassette") for name in RUNS]
    assert sorted(paths) == sorted(map(str, CASSETTES.glob("*.cassette")))
    done = replay(*paths)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == paths
