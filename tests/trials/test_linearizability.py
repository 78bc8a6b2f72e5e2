"""Small histories of a register, of a log and of a lease, some of which no single thing could have made."""

from math import inf
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
from trials.simulation.world.history import History, Operation

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
