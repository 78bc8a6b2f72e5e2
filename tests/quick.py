"""`make t`: checks your uncommitted changes and those since main in twenty seconds.

ruff and pyright check the changed files; pytest runs ten smoke tests and then the tests that the change can affect, the
nearest first, until the time is over. It names the tests it omitted; `make check` runs all.
"""

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import pytest

from tests.closest import find_closest
from tests.support.imports import ROOT
from trials.support.steps import ask_git

SECONDS = 19.0
"""A test, or pyright, that is not done by then is given up: `python -m tests.quick 60` on a busy machine."""

TESTS_PART = 0.8
"""No test is begun after this part of the time."""

FILES_MAX = 30
"""Test files that are collected at all: to import one takes up to a second."""

SMOKE = [
    "tests/test_protos.py::test_each_route_leads_to_one_rpc",
    "tests/test_errors.py::test_every_reason_has_the_contracts_status_code",
    "tests/test_event_json.py::test_json_within_an_event_keeps_its_text",
    "tests/test_streams.py::test_an_error_in_the_readers_own_block_cancels_the_work",
    "tests/test_client.py::test_ask_gives_every_delta_in_order",
    "tests/llm_gateway/test_count_tokens.py::test_an_empty_request_counts_two_tokens",
    "tests/tools/test_service.py::test_a_tool_is_found_whatever_the_case_of_its_name",
    "tests/facade/test_service.py::test_every_grpc_code_has_an_http_status",
    "tests/orchestrator/run/test_approval_rules.py::test_without_a_file_only_the_tools_definition_decides",
    "tests/orchestrator/turn/test_turn_retries.py::test_a_turn_without_deltas_is_retried",
]


class OutOfTime(KeyboardInterrupt):
    """Ends the test that is running, and the session."""


class TimeBudget:
    """Skips tests that would start after the time is over."""

    def __init__(self, end_at: float) -> None:
        self._end_at = end_at
        self.left_out: Counter[str] = Counter()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.monotonic() < self._end_at:
            return None
        self.left_out[item.location[0]] += 1
        return True


def main(arguments: Sequence[str]) -> int:
    started_at = time.monotonic()
    seconds = float(arguments[0]) if arguments else SECONDS
    end_at = started_at + seconds
    changed = list_changed()
    sources = [file for file in changed if file.endswith(".py") and (ROOT / file).exists()]
    closest = find_closest(changed)
    commands = list_commands(sources)
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for command in commands]
    budget = TimeBudget(started_at + seconds * TESTS_PART)
    codes = [run_tests([*SMOKE, *closest[:FILES_MAX]], budget, end_at)]
    for command, process in zip(commands, running, strict=True):
        codes.append(finish(command, process, end_at))
    if remaining := [*budget.left_out, *closest[FILES_MAX:]]:
        names = ", ".join(remaining[:10]) + (f" and {len(remaining) - 10} more" if len(remaining) > 10 else "")
        print(f"left out, for want of time: {names}")
    print(f"{len(changed)} files changed, {time.monotonic() - started_at:.0f} s")
    return max(codes)


def list_changed() -> list[str]:
    """Return the files that differ from the branch's base on main, and new ones, as paths from the root."""
    base = ask_git("merge-base", "HEAD", "main") or "HEAD"
    listed = ask_git("diff", "--name-only", base), ask_git("ls-files", "--others", "--exclude-standard")
    return sorted({file for files in listed for file in files.splitlines()})


def list_commands(sources: Sequence[str]) -> list[list[str]]:
    if not sources:
        return []
    programs = Path(sys.executable).parent
    ruff, pyright = str(programs / "ruff"), str(programs / "pyright")
    options = ["--quiet", "--force-exclude", *sources]
    return [[ruff, "format", "--check", *options], [ruff, "check", *options], [pyright, *sources]]


def run_tests(tests: Sequence[str], budget: TimeBudget, end_at: float) -> int:
    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTime

    signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, max(1.0, end_at - time.monotonic()))
    try:
        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-m", "not nightly"]
        code = int(pytest.main([*options, *tests], plugins=[budget]))
    except OutOfTime:
        code = pytest.ExitCode.INTERRUPTED
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if code == pytest.ExitCode.INTERRUPTED:
        print("the tests are not done in time")
        return 0
    return code


def finish(command: Sequence[str], process: subprocess.Popen[str], end_at: float) -> int:
    """Print the command's output if it failed; stop waiting when the time is over."""
    try:
        output, _ = process.communicate(timeout=max(0.1, end_at - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        print(f"not done in time: {Path(command[0]).name}")
        return 0
    if process.returncode:
        print(output)
    return process.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
