"""Steps of a check run in parallel, continue after a failure, and are summed up at the end."""

import json
import time
from pathlib import Path

import pytest

from trials.nightly import describe
from trials.support.commands import NOT_TRIED
from trials.support.reliability import fill_region
from trials.support.steps import Result, Step, report, run_steps

KILLED_S = 60.0
"""Time until a killed process is gone, on a busy machine."""


def make_bash_step(name: str, script: str, *after: str, cores: int = 1, minutes_max: float = 1.0) -> Step:
    return Step(name, ["bash", "-c", script], after, cores, minutes_max)


def test_a_failed_steps_output_is_shown_and_the_others_continue(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = [
        make_bash_step("broken", "echo the reason; exit 3"),
        make_bash_step("silent", "echo nothing to see"),
        make_bash_step("lacking", f"exit {NOT_TRIED}"),
        make_bash_step("tests", "echo in sight", "broken", cores=2),
    ]
    results = run_steps(steps, tmp_path)
    assert [result.outcome for result in results] == ["failed", "passed", "not tried", "passed"]
    output = capfd.readouterr().out
    assert "the reason" in output
    assert "in sight" in output
    assert "nothing to see" not in output


def test_a_step_starts_when_its_dependencies_have_ended(tmp_path: Path) -> None:
    first = make_bash_step("first", f"sleep 0.2; touch {tmp_path}/made")
    assert [
        result.outcome
        for result in run_steps([make_bash_step("second", f"test -e {tmp_path}/made", "first"), first], tmp_path)
    ] == ["passed", "passed"]


def test_a_step_out_of_time_is_killed_with_its_children(tmp_path: Path) -> None:
    script = f"sleep 100 & echo $! >{tmp_path}/pid; wait"  # A background process does not get SIGINT.
    (result,) = run_steps([Step("stuck", ["bash", "-c", script], minutes_max=0.005)], tmp_path)
    assert result.outcome == "failed"
    child = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    end_at = time.monotonic() + KILLED_S
    while child.exists() and child.read_text().split()[2] != "Z":
        assert time.monotonic() < end_at
        time.sleep(0.01)


def test_unstable_tests_are_reported_at_the_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    results = run_steps(
        [make_bash_step("tests", "echo UNSTABLE: passed only alone: test_a; echo; echo 100 passed")], tmp_path
    )
    assert report(results, 1.0, tmp_path / "check.json") == 0
    assert "tests: UNSTABLE: passed only alone: test_a\npassed\n" in capfd.readouterr().out
    summary = json.loads((tmp_path / "check.json").read_text())
    assert [step["name"] for step in summary["steps"]] == ["tests"]


def test_a_step_that_was_not_tried_is_not_a_success(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert report([Result("image", "not tried", 0.1)], 0.1, tmp_path / "check.json") == 1
    assert capfd.readouterr().out.endswith("not passed: image (not tried)\n")


def test_a_steps_row_is_updated_and_the_others_are_kept() -> None:
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
