"""What must hold in every world once its faults are over; each judge returns what is wrong."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from services.orchestrator.cluster.takeover import SEQ_PER_GENERATION
from services.runtime.randomness import new_uuid
from tests.order import TERMINAL, check_order, fold
from tests.simulation.peers import ONCE
from tests.simulation.users import Asked
from tests.simulation.world.world import LEASE_S

if TYPE_CHECKING:
    from tests.simulation.users import User
    from tests.simulation.world.world import World

CANCEL_S = 2.0
"""Time for which a run may still say something after its cancel was answered."""

LOOKS = 20
"""How often unfinished runs are looked for, LEASE_S apart: a model or a tool may stall within each turn of a run."""

DAMAGE = ("log damaged", "log cannot be read")
"""What memory logs of a disk that has lost more than a cut of the power may take."""

ALLOWED: dict[str, str] = {}
"""Events of errors that nobody has named and faults explain, each with its reason."""

REFUSALS: dict[str, tuple[str, ...]] = {}
"""Reasons for which a query may begin no run, by its whenBusy; a busy chat is asked again until it takes the query."""


def judge_logs(world: World) -> list[str]:
    """Services met no error that nobody has named, and no damage."""
    return [
        f"{entry.get('process')}: {entry['event']}: {entry.get('exception') or entry.get('error', '')}"
        for entry in world.logged
        if entry["event"] in DAMAGE
        or (entry["level"] in ("error", "critical") and "exception" in entry and entry["event"] not in ALLOWED)
    ]


def judge_tasks(world: World) -> list[str]:
    """No task of a living process has failed without anybody having looked at its error."""
    return [
        f"{process.name}: nobody has looked at the error of {task!r}"
        for process in world.all_processes
        if not process.is_dead
        for task in process.tasks
        if task.done() and task._log_traceback  # pyright: ignore[reportAttributeAccessIssue] - asyncio's own mark
    ]


def judge_effects(world: World, logs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """A `once` tool was run once at most for each call, and once for each result in the logs."""
    counts: Counter[tuple[str, str]] = Counter()
    for key, count in world.outside.once.items():
        run_id, call_id = key.split("/")[:2]
        counts[run_id, call_id] += count
    problems = [f"the effect of call {call} was had {count} times" for call, count in counts.items() if count > 1]
    results = Counter(
        (line["runId"], message["tool_call_id"])
        for lines in logs.values()
        for line in lines
        for message in line.get("messages", ())
        if message["role"] == "tool" and message["name"] == ONCE and message["_ok"]
    )
    for call, count in results.items():
        if counts[call] != 1 or count != 1:
            problems.append(f"call {call} has {count} results in the log and had {counts[call]} effects")
    return problems


async def wait_for_runs(world: World) -> list[str]:
    """Each run comes to its end in the log while nobody asks for it: a take-over needs no reader."""
    await asyncio.sleep(3 * LEASE_S)
    unfinished: list[str] = []
    for _ in range(LOOKS):
        if not (unfinished := list_unfinished(read_logs(world))):
            return []
        await asyncio.sleep(LEASE_S)
    return [f"nobody has ended run {run_id}" for run_id in unfinished]


def list_unfinished(logs: dict[str, list[dict[str, Any]]]) -> list[str]:
    """Return the runs that have a query and no end."""
    lines = [line for lines in logs.values() for line in lines if line.get("runId")]
    ended = {line["runId"] for line in lines if line["_type"] == "run"}
    return [line["runId"] for line in lines if line["_type"] == "query" and line["runId"] not in ended]


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
    return {path.stem: [*map(_parse, path.read_bytes().splitlines())] for path in sorted(folder.glob("*.json"))}


def _parse(line: bytes) -> dict[str, Any]:
    try:
        return json.loads(line)
    except ValueError:
        return {"_n": 0, "_type": "unreadable"}  # which judge_chats takes for a gap


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


async def read_states(judge: User, people: Iterable[User]) -> None:
    """Read the state of each chat once more, behind all that was done to it."""
    for chat_id in dict.fromkeys(move.chat_id for user in people for move in user.states):
        await judge.read_state(chat_id)


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
