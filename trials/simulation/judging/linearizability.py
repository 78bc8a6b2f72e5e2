"""Checks whether a history is possible for a single object that executes one call after another.

The search is that of Wing and Gong with Lowe's memory of visited states, as in porcupine: each call that may
come first is tried, and states already visited are not tried again. A call without an answer may take effect at
any time after it was sent, or never.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, TypeAlias

from headrace.v1 import memory_pb2
from trials.simulation.world.history import get_append

if TYPE_CHECKING:
    from trials.simulation.world.history import History, Operation

STEPS_MAX = 50_000
"""Maximum number of steps of a search; a history that needs more is reported as too long."""

State: TypeAlias = Hashable
Model: TypeAlias = "Callable[[Any, Operation], Iterator[State]]"
"""Yields the states to which a call with its answer may lead from a state; none if it is impossible there."""


def is_linearizable(operations: Sequence[Operation], initial: State, model: Model) -> bool | None:
    """Return whether the history is linearizable; None if the search was given up."""
    calls = sorted(operations, key=lambda call: call.asked_s)
    whole = sum(1 << at for at, call in enumerate(calls) if call.answered_s < inf)
    seen: set[tuple[int, State]] = set()
    stack: list[tuple[int, State]] = [(0, initial)]
    for _ in range(STEPS_MAX):
        if not stack:
            return False
        done, state = stack.pop()
        if done & whole == whole:
            return True
        for at in reversed(_list_first(calls, done)):
            for after in model(state, calls[at]):
                place = (done | 1 << at, after)
                if place not in seen:
                    seen.add(place)
                    stack.append(place)
    return None


def _list_first(calls: Sequence[Operation], done: int) -> list[int]:
    """Return the calls that may come first: no other call was answered before they were sent."""
    first: list[int] = []
    until_s = inf
    for at, call in enumerate(calls):
        if call.asked_s > until_s:
            break
        if not done >> at & 1:
            first.append(at)
            until_s = min(until_s, call.answered_s)
    return first


def judge_history(history: History, erased: Collection[str] = (), *, reads_hold: bool = True) -> list[str]:
    """Check that the log of each chat, the leases of each run and each state are linearizable.

    Unless `reads_hold`, reads and refused changes of states are ignored. Logs of chats in `erased` are skipped,
    because they may have restarted.
    """
    appends: dict[str, list[Operation]] = {}
    leases: dict[str, list[Operation]] = {}
    states: dict[tuple[str, str], list[Operation]] = {}
    reverted: set[str] = set()
    _learn_answers(history.operations)
    for call in history.operations:
        request = call.request
        match call.kind:
            case "Append" | "BeginRun":
                appending = get_append(call)
                appends.setdefault(appending.chat_id, []).append(call)
                leases.setdefault(appending.run_id, []).append(call)
            case "AcquireLease":
                leases.setdefault(request.run_id, []).append(call)
            case "Revert":
                reverted.add(request.chat_id)
            case "GetState" if not reads_hold:
                pass
            case "UpdateState" if call.is_refused and not reads_hold:
                pass
            case _:
                states.setdefault((request.chat_id, request.context_id), []).append(call)
    problems: list[str] = []
    for chat_id, calls in appends.items():
        if chat_id in erased:
            continue
        problems += _judge(f"the log of chat {chat_id}", calls, 0, append_lines)
    for run_id, calls in leases.items():
        problems += _judge(f"the lease of run {run_id}", calls, (0, 0), fence_owner)
    for (chat_id, _), calls in states.items():
        if chat_id not in reverted:  # a revert changes the version by more than one
            problems += _judge(f"the state of chat {chat_id}", calls, 0, change_state)
    return problems


def _learn_answers(calls: Sequence[Operation]) -> None:
    """Give appends without an answer the answer of their repetition, because they may have taken effect."""
    appends = [call for call in calls if call.kind in ("Append", "BeginRun")]
    known = {get_append(call).request_id: get_appended(call) for call in appends if call.answer is not None}
    for call in appends:
        appended = known.get(get_append(call).request_id)
        if call.answer is None and not call.is_refused and appended is not None:
            response = memory_pb2.BeginRunResponse(append=appended)
            call.answer = response if call.kind == "BeginRun" else appended


def _judge(what: str, calls: Sequence[Operation], initial: State, model: Model) -> list[str]:
    found = is_linearizable(calls, initial, model)
    if found is None:
        return [f"{what}: its history of {len(calls)} calls is too long to be judged"]
    return [] if found else [f"{what} is not linearizable: {len(calls)} calls"]


def get_appended(call: Operation) -> Any:
    return call.answer.append if call.kind == "BeginRun" else call.answer


def append_lines(last_n: int, call: Operation) -> Iterator[int]:
    """Model of a log: lines are appended after the last one; a repeated append adds none."""
    if call.answer is None:
        yield last_n
        return
    appended = get_appended(call)
    if appended.first_n > last_n:
        yield appended.last_n
    elif appended.last_n <= last_n:  # a repeated append, which gets the existing lines
        yield last_n


def fence_owner(state: tuple[int, int], call: Operation) -> Iterator[tuple[int, int]]:
    """Model of a lease, by generation and last line: generations only grow, and appends of older ones are refused.

    A repeated append gets the answer of the first one, whichever owner has the run now.
    """
    generation, last_n = state
    if call.answer is None:
        yield state
    elif call.kind == "AcquireLease":
        if call.answer.generation > generation:
            yield call.answer.generation, last_n
    elif (appended := get_appended(call)).last_n <= last_n:
        yield state
    elif get_append(call).generation >= generation:
        yield generation, appended.last_n


def change_state(version: int, call: Operation) -> Iterator[int]:
    """Model of a state with compare-and-set, by its version."""
    if call.kind == "GetState":
        if call.answer is None or call.answer.version == version:
            yield version
        return
    expected = call.request.expected_version
    if call.answer is not None:
        if expected == version and call.answer.version == version + 1:
            yield version + 1
    elif call.is_refused:
        if expected != version or call.request.generation:
            yield version
    else:
        yield version
        if expected == version:
            yield version + 1
