"""Golden runs: the recorded runs of the examples come about again, event by event."""

import json
import subprocess
import sys
from pathlib import Path

from tests.golden.__main__ import CASSETTES, OWN_MODE, RUNS

REPLAY = (sys.executable, "-m", "headrace.cli", "replay")


def replay(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*REPLAY, *arguments), capture_output=True, text=True, timeout=300, check=False)


def test_the_golden_runs_come_about_again() -> None:
    paths = [str(CASSETTES / f"{name}.cassette") for name in RUNS]
    assert sorted(paths) == sorted(map(str, CASSETTES.glob("*.cassette")))
    done = replay(*paths)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == paths


def test_a_run_of_a_mode_of_ones_own_brings_its_code_which_runs_when_it_is_trusted(tmp_path: Path) -> None:
    lines = OWN_MODE.read_text().splitlines()
    [number] = [n for n, line in enumerate(lines) if line.startswith('{"mode":')]
    mode = json.loads(lines[number])
    other, without = tmp_path / "other.cassette", tmp_path / "without.cassette"
    changed = mode | {"source": mode["source"].replace("one sentence", "ten words")}
    other.write_text("\n".join([*lines[:number], json.dumps(changed), *lines[number + 1 :]]))
    without.write_text("\n".join([*lines[:number], *lines[number + 1 :]]))
    done = replay("--run-modes", str(OWN_MODE), str(other), str(without))
    changed_says, without_says = done.stderr.splitlines()
    assert (done.returncode, len(done.stdout.splitlines())) == (1, 1)
    assert done.stdout.startswith(f"{OWN_MODE}: "), done.stdout
    assert f"'digest' is not what ran (SHA-256 {mode['sha256']})" in changed_says
    assert without_says.startswith(f"{without}: line "), "it comes to other events"
    assert without_says.endswith("(the cassette does not have the code of: digest)")
    unasked = replay(str(OWN_MODE))
    assert (unasked.returncode, unasked.stdout) == (1, "")
    assert f"the mode 'digest' (SHA-256 {mode['sha256']})" in unasked.stderr
    assert "--run-modes" in unasked.stderr
