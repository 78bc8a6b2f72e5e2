"""Some simulated worlds, each in two processes: no promise is broken, and a seed determines its world."""

import subprocess
import sys
from collections import Counter
from math import inf
from pathlib import Path
from typing import Any

import pytest

from headrace.v1 import memory_pb2
from trials.simulation.judging.linearizability import (
    append_lines,
    change_state,
    fence_owner,
    is_linearizable,
    judge_history,
)
from trials.simulation.ledger import Record, name_ranges, read_all, read_ranges
from trials.simulation.plan import MEMORY, Plan, make_plan
from trials.simulation.report import describe_releases, describe_series
from trials.simulation.shrink import TRIES_MAX, shrink
from trials.simulation.simulate import Result
from trials.simulation.world.history import History, Operation


@pytest.mark.nightly
def test_each_firing_of_a_schedule_starts_once_or_is_reported_despite_kills() -> None:
    command = [sys.executable, "-m", "trials.simulation", "--schedules"]
    process = subprocess.run([*command, "1-2"], capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    assert " 0 broke a promise" in process.stdout
    buggy_run = subprocess.run([*command, "1", "--bug", "forgotten time"], capture_output=True, text=True)
    assert buggy_run.returncode == 1, "the judges find the planted bug"


@pytest.mark.parametrize("seeds", ["2", pytest.param("1-12", marks=pytest.mark.nightly)])
def test_no_world_breaks_a_promise_and_a_seed_gives_the_same_bytes(seeds: str) -> None:
    command = [sys.executable, "-m", "trials.simulation", seeds, "--twice"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    assert " 0 broke a promise" in process.stdout


@pytest.mark.nightly
def test_the_judges_find_planted_bugs() -> None:
    bugs = ("lost result", "unasked call", "old state", "left task")
    command = [sys.executable, "-m", "trials.simulation.planted.find_bugs", *bugs, "--seeds", "10", "--search"]
    process = subprocess.run(command, capture_output=True, text=True)
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.count(" seed ") == len(bugs)


def has_kill_of_memory(plan: Plan) -> bool:
    """Return whether memory is killed while somebody asks an agent that calls tools."""
    is_asked = any(act.agent != "oneshot" for acts in plan.people for act in acts)
    return is_asked and any((fault.kind, fault.target) == ("kill", MEMORY) for fault in plan.faults)


@pytest.mark.parametrize("seed", [seed for seed in range(1, 40) if has_kill_of_memory(make_plan(seed))][:8])
def test_shrinking_a_plan_keeps_only_what_causes_the_failure(seed: int) -> None:
    shrunk_plan = shrink(make_plan(seed), has_kill_of_memory)
    assert [(fault.kind, fault.target) for fault in shrunk_plan.faults] == [("kill", MEMORY)]
    [[act]] = shrunk_plan.people
    assert (act.agent, act.interferences, act.when_busy, act.is_http) == ("react", (), "", False)
    assert (
        shrunk_plan.replicas,
        shrunk_plan.gateways,
        shrunk_plan.chats,
        shrunk_plan.schedules,
        shrunk_plan.approvers,
    ) == (1, 1, 1, (), 0)
    extras = (
        shrunk_plan.has_provider,
        shrunk_plan.has_facade,
        shrunk_plan.has_webhook,
        shrunk_plan.has_watcher,
        shrunk_plan.gate_rule,
        shrunk_plan.skew_s,
    )
    assert extras == (False, False, False, False, "", 0.0)


def test_shrinking_a_minimal_plan_keeps_it_within_a_limit_of_tries() -> None:
    plan, tries = make_plan(3), list[Plan]()

    def breaks(smaller: Plan) -> bool:
        tries.append(smaller)
        return smaller == plan

    assert shrink(plan, breaks) == plan
    assert 0 < len(tries) <= TRIES_MAX


CELL = ("kill", "memory", "idle")


def make_result(seed: int, *problems: str) -> Result:
    return Result(seed, "", [*problems], [], Counter(vanished=2), Counter({CELL: 3}), simulated_s=3600)


@pytest.mark.parametrize(("seeds", "text"), [([3, 1, 2], "1-3"), ([7], "7"), ([5, 1, 2, 9, 10], "1-2, 5, 9-10")])
def test_ranges_of_seeds_are_read_back_as_written(seeds: list[int], text: str) -> None:
    assert name_ranges(seeds) == text
    assert [*read_ranges(text)] == sorted(seeds)


def test_a_record_is_read_back_as_saved_and_counts_each_seed_once(tmp_path: Path) -> None:
    record = Record("abc", "2026-11-26T10:00:00+00:00")
    for result in (make_result(1), make_result(2, "a call was lost"), make_result(1)):
        record.add(result)
        record.save(tmp_path)
    assert read_all(tmp_path) == [record]
    assert (record.seeds, record.failed, record.bites[CELL]) == ({1, 2}, {2: "a call was lost"}, 6)


def test_the_page_sums_up_releases_and_the_report_lists_failed_seeds(tmp_path: Path) -> None:
    for commit, when, seeds in (("new0", "2026-11-27", (1, 2, 3)), ("old0", "2026-11-26", (1, 9))):
        record = Record(commit, when)
        for seed in seeds:
            record.add(make_result(seed, *(["lost"] if seed == 9 else [])))
        record.save(tmp_path)
    records = read_all(tmp_path)
    assert [record.commit for record in records] == ["old0", "new0"]
    before = "| release |\n|---|\n| 0.1.0 | 43 |\n| unreleased | 1 |\n"
    assert [*describe_releases(records, before)][2:] == ["| 0.1.0 | 43 |", "| unreleased | 2 | 5 | 5.0 | 15 | 1 |"]
    lines = [*describe_series(records)]
    assert "- old0, seed 9: lost" in lines
    assert any(line.startswith("| kill | memory | 15 |") for line in lines)


CHAT, RUN = "c", "r"


def read_state(version: int, asked_s: float, answered_s: float) -> Operation:
    request = memory_pb2.GetStateRequest(chat_id=CHAT)
    return Operation("GetState", request, asked_s, answered_s, memory_pb2.GetStateResponse(version=version))


def change_state_call(expected: int, asked_s: float, answered_s: float, *, outcome: str = "made") -> Operation:
    request = memory_pb2.UpdateStateRequest(chat_id=CHAT, expected_version=expected)
    answer = memory_pb2.UpdateStateResponse(version=expected + 1) if outcome == "made" else None
    return Operation("UpdateState", request, asked_s, answered_s, answer, is_refused=outcome == "refused")


def append_line(n: int, asked_s: float, answered_s: float, *, generation: int = 0, request_id: str = "") -> Operation:
    request = memory_pb2.AppendRequest(chat_id=CHAT, run_id=RUN, generation=generation, request_id=request_id or f"{n}")
    answer = memory_pb2.AppendResponse(first_n=n, last_n=n) if answered_s < inf else None
    return Operation("Append", request, asked_s, answered_s, answer)


def acquire_lease(generation: int, asked_s: float, answered_s: float) -> Operation:
    request = memory_pb2.AcquireLeaseRequest(chat_id=CHAT, run_id=RUN)
    return Operation(
        "AcquireLease", request, asked_s, answered_s, memory_pb2.AcquireLeaseResponse(generation=generation)
    )


STATES: dict[str, tuple[list[Operation], bool]] = {
    "a change is seen by who asks behind it": ([change_state_call(0, 0, 1), read_state(1, 2, 3)], True),
    "a change is seen by no one behind it": ([change_state_call(0, 0, 1), read_state(0, 2, 3)], False),
    "who asks beside a change may see either": ([change_state_call(0, 0, 3), read_state(0, 1, 2)], True),
    "nobody sees an older state than one before": (
        [change_state_call(0, 0, 9), read_state(1, 1, 2), read_state(0, 3, 4)],
        False,
    ),
    "one of two changes is made": ([change_state_call(0, 0, 1), change_state_call(0, 0, 1)], False),
    "the other one is refused": ([change_state_call(0, 0, 1), change_state_call(0, 0, 1, outcome="refused")], True),
    "nobody is refused for nothing": ([change_state_call(0, 0, 1, outcome="refused")], False),
    "a change without an answer may be made": (
        [change_state_call(0, 0, inf, outcome="lost"), read_state(1, 5, 6)],
        True,
    ),
    "or not": ([change_state_call(0, 0, inf, outcome="lost"), read_state(0, 5, 6)], True),
    "but not before it was asked for": ([read_state(1, 0, 1), change_state_call(0, 2, inf, outcome="lost")], False),
}


@pytest.mark.parametrize("name", STATES)
def test_histories_of_a_chats_state_are_linearizable_as_a_register(name: str) -> None:
    calls, holds = STATES[name]
    assert is_linearizable(calls, 0, change_state) is holds


def test_appended_lines_are_in_the_order_of_their_replies() -> None:
    assert is_linearizable([append_line(1, 0, 1), append_line(2, 0, 1), append_line(1, 3, 4)], 0, append_lines)
    assert not is_linearizable([append_line(2, 0, 1), append_line(1, 2, 3, request_id="late")], 0, _without_repeats)


def _without_repeats(last_n: int, call: Operation) -> Any:
    return (after for after in append_lines(last_n, call) if after != last_n)


def test_an_append_by_an_older_owner_is_not_linearizable() -> None:
    assert is_linearizable(
        [append_line(1, 0, 1), acquire_lease(1, 2, 3), append_line(2, 4, 5, generation=1)], (0, 0), fence_owner
    )
    assert not is_linearizable(
        [append_line(1, 0, 1), acquire_lease(1, 2, 3), append_line(2, 4, 5)], (0, 0), fence_owner
    )
    assert not is_linearizable([acquire_lease(1, 0, 1), acquire_lease(1, 2, 3)], (0, 0), fence_owner)


def test_the_repetition_of_an_append_shows_that_the_first_was_stored() -> None:
    history = History(
        [append_line(1, 0, inf, request_id="x"), acquire_lease(1, 2, 3), append_line(1, 4, 5, request_id="x")]
    )
    assert judge_history(history) == []
    assert judge_history(History([acquire_lease(1, 2, 3), append_line(1, 4, 5, request_id="x")])) != []
