"""What must hold in every world once its faults are over; each judge returns what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from services.orchestrator.cluster.takeover import SEQ_PER_GENERATION
from services.runtime.randomness import new_uuid
from tests.order import TERMINAL, check_order, fold
from tests.simulation.users import Asked

if TYPE_CHECKING:
    from tests.simulation.users import User
    from tests.simulation.world.world import World

CANCEL_S = 2.0
"""Time for which a run may still say something after its cancel was answered."""

BUGS = ("rpc failed", "run failed", "append failed", "commit failed", "task ended by an error", "runs not looked for")
"""What services log of an error that nobody has named."""


def judge_logs(world: World) -> list[str]:
    """Services found no mistake of their own."""
    return [
        f"{entry.get('process')}: {entry['event']}: {entry.get('exception', entry.get('problem', ''))}"
        for entry in world.logged
        if entry["event"] in BUGS and entry.get("level") != "warning"
    ]


def judge_effects(world: World) -> list[str]:
    """A `once` tool was run once at most under each key."""
    return [f"the effect {key} was had {count} times" for key, count in world.outside.once.items() if count > 1]


async def wait_for_chats(judge: User, people: Iterable[User]) -> list[str]:
    """Each chat takes the next message, behind all that was asked of it."""
    problems: list[str] = []
    chats = dict.fromkeys(asked.chat_id for user in people for asked in user.asked if asked.run_id)
    for chat_id in chats:
        last = Asked(chat_id, new_uuid(), "the last question", "oneshot")
        await judge.ask(last)
        if last.outcome != "run.complete":
            problems.append(f"chat {chat_id} does not take the next message: {last.outcome}")
    return problems


def read_logs(world: World) -> dict[str, list[dict[str, Any]]]:
    folder = world.storage.logs_dir
    return {path.stem: [*map(json.loads, path.read_bytes().splitlines())] for path in sorted(folder.glob("*.json"))}


def judge_chats(logs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Lines are numbered without gaps, and each run has one query and one end."""
    problems: list[str] = []
    for chat_id, lines in logs.items():
        if [line["_n"] for line in lines] != list(range(1, len(lines) + 1)):
            problems.append(f"the log of chat {chat_id} has a gap: {[line['_n'] for line in lines]}")
        for run_id in dict.fromkeys(line["runId"] for line in lines if line.get("runId")):
            kinds = [line["_type"] for line in lines if line.get("runId") == run_id]
            if kinds[0] != "query" or kinds.count("query") != 1:
                problems.append(f"run {run_id} begins as {kinds[:2]}")
            steps = [line["_seq"] for line in lines if line.get("runId") == run_id and line["_type"] == "step"]
            if len(steps) != len(set(steps)):
                problems.append(f"run {run_id} has a step twice: {steps}")
            generations = [line.get("_gen", 0) for line in lines if line.get("runId") == run_id]
            if generations != sorted(generations):
                problems.append(f"run {run_id} has lines of an owner that had lost it: {generations}")
            if kinds.count("run") != 1:
                problems.append(f"run {run_id} has {kinds.count('run')} ends in the log")
    return problems


async def judge_reader(user: User, asked: Asked, logs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A reader was told one end, in order, and what comes later says the same."""
    if not asked.run_id:
        return [] if asked.refusal else ["a query was neither begun nor refused"]
    name = f"run {asked.run_id}"
    if asked.end is None:
        return [f"{name} came to no end: {asked.refusal}"]
    problems: list[str] = []
    ends = [event["type"] for event in asked.events if event["type"] in TERMINAL]
    if len(ends) != 1:
        problems.append(f"{name}: its reader was told {ends}")
    if asked.tries == 1 and asked.events[-1]["seq"] < SEQ_PER_GENERATION:
        problems += _catch(name, lambda: check_order(asked.events))
    if asked.run_id not in {line.get("runId") for line in logs.get(asked.chat_id, ())}:
        problems.append(f"{name} is not in the log, and its reader was told of it")
    if asked.outcome in ("INTERNAL", "UNKNOWN"):
        problems.append(f"{name} failed as {asked.outcome}")
    later = await user.read_again(asked.run_id)
    try:
        first, second = fold(asked.events), fold(later)
    except AssertionError as error:
        return [*problems, f"{name}: {error}"]
    if first != second:
        problems.append(f"{name}: who comes later is told something else: {_diff(first, second)}")
    return problems


def judge_acts(user: User, logs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """What was answered is there: steers in the log, cancels in the run's end, states in their order."""
    problems: list[str] = []
    for chat_id, text in user.steers:
        if text not in json.dumps(logs.get(chat_id, [])):
            problems.append(f"the steer {text!r} was answered and is not in the log of chat {chat_id}")
    for asked, told_ms in user.cancels:
        # A run whose end waits for the disk only may still be complete; one that goes on working was not cancelled.
        late = [event["type"] for event in asked.events if event["timestamp"] > told_ms + 1000 * CANCEL_S]
        is_same_owner = asked.end is not None and asked.end["seq"] < SEQ_PER_GENERATION
        if is_same_owner and late[:-1] and asked.outcome != "run.cancel":
            problems.append(f"run {asked.run_id} was cancelled, went on with {late} and ended with {asked.outcome}")
    return problems


def judge_states(people: Iterable[User]) -> list[str]:
    """Each version of a chat's state was made once, by a change of the one before, and no reader went back.

    With versions it is all of linearizability: an answer that came before another was asked for has no later version.
    """
    problems: list[str] = []
    moves = [move for user in people for move in user.states]
    for move in moves:
        for other in moves:
            if move.chat_id != other.chat_id or move is other:
                continue
            if move.is_change and other.is_change and move.version == other.version:
                problems.append(f"version {move.version} of the state of chat {move.chat_id} was made twice")
            if move.answered_s < other.asked_s and move.version + other.is_change > other.version:
                problems.append(f"the state of chat {move.chat_id} went back from {move.version} to {other.version}")
    return problems


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
