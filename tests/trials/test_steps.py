"""Steps of a check run beside each other, go on after a failure, and say at the end what came of them."""

import json
import time
from pathlib import Path

import pytest

from trials.nightly import describe
from trials.support.commands import NOT_TRIED
from trials.support.reliability import fill_region
from trials.support.steps import Result, Step, report, run_steps

KILLED_S = 60.0
"""Until a process that was killed is gone, on a busy machine."""


def bash(name: str, script: str, *after: str, cores: int = 1, minutes_max: float = 1.0) -> Step:
    return Step(name, ["bash", "-c", script], after, cores, minutes_max)


def test_a_failed_step_is_shown_whole_and_the_others_go_on(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    steps = [
        bash("broken", "echo the reason; exit 3"),
        bash("silent", "echo nothing to see"),
        bash("lacking", f"exit {NOT_TRIED}"),
        bash("tests", "echo in sight", "broken", cores=2),
    ]
    results = run_steps(steps, tmp_path)
    assert [result.outcome for result in results] == ["failed", "passed", "not tried", "passed"]
    output = capfd.readouterr().out
    assert "the reason" in output
    assert "in sight" in output
    assert "nothing to see" not in output


def test_a_step_begins_when_those_before_it_have_ended(tmp_path: Path) -> None:
    first = bash("first", f"sleep 0.2; touch {tmp_path}/made")
    assert [
        one.outcome for one in run_steps([bash("second", f"test -e {tmp_path}/made", "first"), first], tmp_path)
    ] == ["passed", "passed"]


def test_a_step_that_does_not_end_is_ended_with_what_it_has_started(tmp_path: Path) -> None:
    script = f"sleep 100 & echo $! >{tmp_path}/pid; wait"  # in the background it does not hear SIGINT
    (result,) = run_steps([Step("stuck", ["bash", "-c", script], minutes_max=0.005)], tmp_path)
    assert result.outcome == "failed"
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    end_at = time.monotonic() + KILLED_S
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < end_at
        time.sleep(0.01)


def test_what_is_unstable_is_said_at_the_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = run_steps([bash("tests", "echo UNSTABLE: passed only alone: test_a; echo; echo 100 passed")], tmp_path)
    assert report(results, 1.0, tmp_path / "check.json") == 0
    assert "tests: UNSTABLE: passed only alone: test_a\npassed\n" in capfd.readouterr().out
    summary = json.loads((tmp_path / "check.json").read_text())
    assert [step["name"] for step in summary["steps"]] == ["tests"]


def test_what_was_not_tried_is_no_success(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert report([Result("image", "not tried", 0.1)], 0.1, tmp_path / "check.json") == 1
    assert capfd.readouterr().out.endswith("not passed: image (not tried)\n")


def test_a_steps_row_is_written_anew_and_the_others_stay() -> None:
    names = ["tests", "image", "fuzz"]
    first = describe(
        [Result("tests", "failed", 30.0), Result("image", "not tried", 0.1, ["image: NOT TRIED: no root"])],
        {"commit": "0123456789", "date": "2026-11-28"},
        names,
        "It was not run yet.\n",
    )
    night = describe([Result("tests", "passed", 31.0)], {"commit": "abcdef0123", "date": "2026-11-29"}, names, first)
    page = fill_region(
        "before\n<!-- nightly -->\nold\n<!-- end -->\n\n<!-- series -->\n<!-- end -->\n", "nightly", night
    )
    assert page.startswith("before\n<!-- nightly -->\n| step | result |")
    assert page.endswith("<!-- end -->\n\n<!-- series -->\n<!-- end -->\n")
    assert night.splitlines()[2:] == [
        "| tests | passed | 31.0 | abcdef0123 | 2026-11-29 |  |",
        "| image | not tried | 0.1 | 0123456789 | 2026-11-28 | image: NOT TRIED: no root |",
        "| fuzz | not run |  |  |  |  |",
    ]
