"""Some worlds, each in two processes: nothing is lost in them, and a seed says everything about its world."""

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
def test_each_time_of_a_schedule_is_begun_once_or_told_whoever_is_killed() -> None:
    command = [sys.executable, "-m", "trials.simulation", "--schedules"]
    done = subprocess.run([*command, "1-2"], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broke a promise" in done.stdout
    planted = subprocess.run([*command, "1", "--bug", "forgotten time"], capture_output=True, text=True)
    assert planted.returncode == 1, "the judges see what is not kept"


@pytest.mark.parametrize("seeds", ["2", pytest.param("1-12", marks=pytest.mark.nightly)])
def test_no_world_breaks_a_promise_and_a_seed_gives_the_same_bytes(seeds: str) -> None:
    command = [sys.executable, "-m", "trials.simulation", seeds, "--twice"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " 0 broke a promise" in done.stdout


@pytest.mark.nightly
def test_the_judges_see_bugs_that_are_put_around_the_services() -> None:
    bugs = ("lost result", "unasked call", "old state", "left task")
    command = [sys.executable, "-m", "trials.simulation.planted.find_bugs", *bugs, "--seeds", "10", "--search"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count(" seed ") == len(bugs)


def has_kill_of_memory(plan: Plan) -> bool:
    """Break where memory is killed while somebody has asked an agent who calls tools."""
    is_asked = any(act.agent != "oneshot" for acts in plan.people for act in acts)
    return is_asked and any((fault.kind, fault.target) == ("kill", MEMORY) for fault in plan.faults)


@pytest.mark.parametrize("seed", [seed for seed in range(1, 40) if has_kill_of_memory(make_plan(seed))][:8])
def test_what_breaks_nothing_is_left_out_and_what_is_left_is_simple(seed: int) -> None:
    left = shrink(make_plan(seed), has_kill_of_memory)
    assert [(fault.kind, fault.target) for fault in left.faults] == [("kill", MEMORY)]
    [[act]] = left.people
    assert (act.agent, act.interferences, act.when_busy, act.is_http) == ("react", (), "", False)
    assert (left.replicas, left.gateways, left.chats, left.schedules, left.approvers) == (1, 1, 1, (), 0)
    beside = (left.has_provider, left.has_facade, left.has_webhook, left.has_watcher, left.gate_rule, left.skew_s)
    assert beside == (False, False, False, False, "", 0.0)


def test_a_world_that_breaks_by_everything_in_it_stays_and_costs_a_bounded_number_of_tries() -> None:
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
def test_ranges_are_read_as_they_are_written(seeds: list[int], text: str) -> None:
    assert name_ranges(seeds) == text
    assert [*read_ranges(text)] == sorted(seeds)


def test_a_piece_is_read_as_it_was_kept_and_a_seed_counts_once(tmp_path: Path) -> None:
    record = Record("abc", "2026-11-26T10:00:00+00:00")
    for result in (make_result(1), make_result(2, "a call was lost"), make_result(1)):
        record.add(result)
        record.save(tmp_path)
    assert read_all(tmp_path) == [record]
    assert (record.seeds, record.failed, record.bites[CELL]) == ({1, 2}, {2: "a call was lost"}, 6)


def test_the_page_has_the_sum_of_each_release_and_the_report_each_broken_promise(tmp_path: Path) -> None:
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


def read(version: int, asked_s: float, answered_s: float) -> Operation:
    request = memory_pb2.GetStateRequest(chat_id=CHAT)
    return Operation("GetState", request, asked_s, answered_s, memory_pb2.GetStateResponse(version=version))


def change(expected: int, asked_s: float, answered_s: float, *, outcome: str = "made") -> Operation:
    request = memory_pb2.UpdateStateRequest(chat_id=CHAT, expected_version=expected)
    answer = memory_pb2.UpdateStateResponse(version=expected + 1) if outcome == "made" else None
    return Operation("UpdateState", request, asked_s, answered_s, answer, is_refused=outcome == "refused")


def append(n: int, asked_s: float, answered_s: float, *, generation: int = 0, request_id: str = "") -> Operation:
    request = memory_pb2.AppendRequest(chat_id=CHAT, run_id=RUN, generation=generation, request_id=request_id or f"{n}")
    answer = memory_pb2.AppendResponse(first_n=n, last_n=n) if answered_s < inf else None
    return Operation("Append", request, asked_s, answered_s, answer)


def acquire(generation: int, asked_s: float, answered_s: float) -> Operation:
    request = memory_pb2.AcquireLeaseRequest(chat_id=CHAT, run_id=RUN)
    return Operation(
        "AcquireLease", request, asked_s, answered_s, memory_pb2.AcquireLeaseResponse(generation=generation)
    )


STATES: dict[str, tuple[list[Operation], bool]] = {
    "a change is seen by who asks behind it": ([change(0, 0, 1), read(1, 2, 3)], True),
    "a change is seen by no one behind it": ([change(0, 0, 1), read(0, 2, 3)], False),
    "who asks beside a change may see either": ([change(0, 0, 3), read(0, 1, 2)], True),
    "nobody sees an older state than one before": ([change(0, 0, 9), read(1, 1, 2), read(0, 3, 4)], False),
    "one of two changes is made": ([change(0, 0, 1), change(0, 0, 1)], False),
    "the other one is refused": ([change(0, 0, 1), change(0, 0, 1, outcome="refused")], True),
    "nobody is refused for nothing": ([change(0, 0, 1, outcome="refused")], False),
    "a change without an answer may be made": ([change(0, 0, inf, outcome="lost"), read(1, 5, 6)], True),
    "or not": ([change(0, 0, inf, outcome="lost"), read(0, 5, 6)], True),
    "but not before it was asked for": ([read(1, 0, 1), change(0, 2, inf, outcome="lost")], False),
}


@pytest.mark.parametrize("name", STATES)
def test_a_state_is_one_register(name: str) -> None:
    calls, holds = STATES[name]
    assert is_linearizable(calls, 0, change_state) is holds


def test_lines_stand_in_the_order_in_which_they_were_answered() -> None:
    assert is_linearizable([append(1, 0, 1), append(2, 0, 1), append(1, 3, 4)], 0, append_lines)
    assert not is_linearizable([append(2, 0, 1), append(1, 2, 3, request_id="late")], 0, _without_repeats)


def _without_repeats(last_n: int, call: Operation) -> Any:
    return (after for after in append_lines(last_n, call) if after != last_n)


def test_an_older_owner_writes_nothing_more() -> None:
    assert is_linearizable([append(1, 0, 1), acquire(1, 2, 3), append(2, 4, 5, generation=1)], (0, 0), fence_owner)
    assert not is_linearizable([append(1, 0, 1), acquire(1, 2, 3), append(2, 4, 5)], (0, 0), fence_owner)
    assert not is_linearizable([acquire(1, 0, 1), acquire(1, 2, 3)], (0, 0), fence_owner)


def test_an_append_that_was_made_without_an_answer_is_known_by_its_repeat() -> None:
    history = History([append(1, 0, inf, request_id="x"), acquire(1, 2, 3), append(1, 4, 5, request_id="x")])
    assert judge_history(history) == []
    assert judge_history(History([acquire(1, 2, 3), append(1, 4, 5, request_id="x")])) != []
