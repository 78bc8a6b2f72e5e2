"""Events received by people: one end, in order, the same for all, and true."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable
from typing import TYPE_CHECKING, Any

from services.orchestrator.cluster.takeover import SEQ_PER_GENERATION
from tests.support.order import TERMINAL, Event, check_order, fold
from trials.simulation.judging.chats import Logs
from trials.simulation.people.asked import Asked

if TYPE_CHECKING:
    from trials.simulation.people.users import User

CANCEL_S = 2.0
"""How long a run may continue to send events after its cancel was answered."""

REFUSALS: dict[str, tuple[str, ...]] = {}
"""Reasons for which a query may start no run, by its whenBusy; a busy chat is retried until it accepts the query."""


async def judge_reader(user: User, asked: Asked, logs: Logs, taken_back: Container[str]) -> list[str]:
    """Check that a reader got one end, in order, and that later readers get the same unless the end was
    `taken_back`.
    """
    if not asked.run_id:
        if asked.refusal in REFUSALS.get(asked.when_busy, ()):
            return []
        return [f"a query ({asked.when_busy or 'no whenBusy'}) began no run: {asked.refusal or 'nor was it refused'}"]
    name = f"run {asked.run_id}"
    if asked.end is None and asked.is_left:
        return [] if await user.read_again(asked.run_id) else [f"{name} has no end for who comes later"]
    if asked.end is None:
        return [f"{name} came to no end: {asked.refusal}"]
    problems: list[str] = []
    ends = [event["type"] for event in asked.events if event["type"] in TERMINAL]
    if len(ends) != 1:
        problems.append(f"{name}: its reader received {ends}")
    if asked.tries == 1 and asked.events[-1]["seq"] < SEQ_PER_GENERATION:
        problems += _catch(name, lambda: check_order(asked.events))
    if asked.run_id not in {line.get("runId") for line in logs.get(asked.chat_id, ())}:
        problems.append(f"{name} is not in the log, and its reader received it")
    if asked.outcome in ("INTERNAL", "UNKNOWN"):
        problems.append(f"{name} failed as {asked.outcome}")
    problems += await _compare_again(user, asked.run_id, asked.events, taken_back)
    return problems


async def judge_readings(judge: User, people: Iterable[User], taken_back: Container[str]) -> list[str]:
    """Check that each repeated read of a live run got the same events, except for ends in `taken_back`."""
    problems: list[str] = []
    for run_id, events in ((run_id, events) for user in people for run_id, events in user.readings if events):
        problems += await _compare_again(judge, run_id, events, taken_back)
    return problems


def judge_acts(user: User, logs: Logs) -> list[str]:
    """Check that acknowledged acts took effect: steers in the log, cancels in the run's end."""
    problems: list[str] = []
    for chat_id, text in user.steers:
        if text not in json.dumps(logs.get(chat_id, [])):
            problems.append(f"the steer {text!r} was answered and is not in the log of chat {chat_id}")
    for asked, told_s in user.cancels:
        # A run with an end that waits only for the disk may still complete; one that continues working was not
        # cancelled.
        late_ms = user.world.tell_owners_ms(asked.run_id, told_s + CANCEL_S)
        late = [event["type"] for event in asked.events if event["timestamp"] > late_ms]
        is_same_owner = asked.end is not None and asked.end["seq"] < SEQ_PER_GENERATION
        if is_same_owner and late[:-1] and asked.outcome != "run.cancel":
            problems.append(f"run {asked.run_id} was cancelled, went on with {late} and ended with {asked.outcome}")
    return problems


async def _compare_again(user: User, run_id: str, events: list[Event], taken_back: Container[str]) -> list[str]:
    later = await user.read_again(run_id)
    if run_id in taken_back and later[-1]["seq"] != events[-1]["seq"]:
        return []
    return _compare(f"run {run_id}", events, later)


def _compare(name: str, events: list[Event], later: list[Event]) -> list[str]:
    try:
        first, second = fold(events), fold(later)
    except AssertionError as error:
        return [f"{name}: {error}"]
    if first != second:
        return [f"{name}: a later reader receives something else: {_diff(first, second)}"]
    return []


def _catch(name: str, check: Any) -> list[str]:
    try:
        check()
    except AssertionError as error:
        return [f"{name}: {error}"]
    return []


def _diff(first: dict[str, Any], second: dict[str, Any]) -> str:
    keys: Iterable[str] = {**first["blocks"], **second["blocks"]}
    shown = [
        f"{key}: {first['blocks'].get(key)} / {second['blocks'].get(key)}"
        for key in keys
        if first["blocks"].get(key) != second["blocks"].get(key)
    ]
    if first["end"] != second["end"]:
        shown.append(f"end: {first['end']} / {second['end']}")
    return "; ".join(shown)[:1500]
