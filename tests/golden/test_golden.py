"""Golden runs: the recorded runs of the examples run_replay event by event."""

import json
import subprocess
import sys
from pathlib import Path

from tests.golden.__main__ import CASSETTES, OWN_MODE, RUNS

REPLAY = (sys.executable, "-m", "headrace.cli", "replay")


def run_replay(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run((*REPLAY, *arguments), capture_output=True, text=True, timeout=300, check=False)


def test_the_golden_runs_replay_to_the_same_events() -> None:
    paths = [str(CASSETTES / f"{name}.cassette") for name in RUNS]
    assert sorted(paths) == sorted(map(str, CASSETTES.glob("*.cassette")))
    process = run_replay(*paths)
    assert (process.returncode, process.stderr) == (0, "")
    assert [line.partition(":")[0] for line in process.stdout.splitlines()] == paths


def test_a_custom_modes_recording_replays_only_with_run_modes_and_unchanged_code(tmp_path: Path) -> None:
    lines = OWN_MODE.read_text().splitlines()
    [number] = [n for n, line in enumerate(lines) if line.startswith('{"mode":')]
    mode = json.loads(lines[number])
    other, without = tmp_path / "other.cassette", tmp_path / "without.cassette"
    changed = mode | {"source": mode["source"].replace("one sentence", "ten words")}
    other.write_text("\n".join([*lines[:number], json.dumps(changed), *lines[number + 1 :]]))
    without.write_text("\n".join([*lines[:number], *lines[number + 1 :]]))
    process = run_replay("--run-modes", str(OWN_MODE), str(other), str(without))
    changed_says, without_says = process.stderr.splitlines()
    assert (process.returncode, len(process.stdout.splitlines())) == (1, 1)
    assert process.stdout.startswith(f"{OWN_MODE}: "), process.stdout
    assert f"'digest' is not what ran (SHA-256 {mode['sha256']})" in changed_says
    assert without_says.startswith(f"{without}: line "), "the run_replay gives other events"
    assert without_says.endswith("(the cassette does not have the code of: digest)")
    untrusted_replay = run_replay(str(OWN_MODE))
    assert (untrusted_replay.returncode, untrusted_replay.stdout) == (1, "")
    assert f"the mode 'digest' (SHA-256 {mode['sha256']})" in untrusted_replay.stderr
    assert "--run-modes" in untrusted_replay.stderr
