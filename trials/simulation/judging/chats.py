"""Logs on disk: required contents of each chat, and completion of all runs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from services.memory.data.redaction import REDACTED
from services.runtime.randomness import new_uuid
from trials.simulation.people.asked import Asked

if TYPE_CHECKING:
    from trials.simulation.people.users import User
    from trials.simulation.world.world import World

OWNERS_MAX = 4
"""Number of owners after whose deaths a run is given up (docs/reference/errors.md, INTERRUPTED)."""

LOOKS, LOOK_S = 240, 5.0
"""How often unfinished runs are checked, over 40 leases: a model or tool may stall in each turn of a run."""

Line: TypeAlias = "dict[str, Any]"
Logs: TypeAlias = "dict[str, list[Line]]"
"""Lines of each chat, by chat id."""


def read_logs(world: World) -> Logs:
    if world.database is not None:
        return {chat_id: [*map(_parse, lines)] for chat_id, lines in world.database.read_logs().items()}
    folder = world.storage.logs_dir
    return {path.stem: [*map(_parse, path.read_bytes().splitlines())] for path in sorted(folder.glob("*.json"))}


def _parse(line: bytes) -> Line:
    try:
        return json.loads(line)
    except ValueError:
        return {"_n": 0, "_type": "unreadable"}  # judge_chats reports it as a gap


def split_runs(logs: Logs) -> dict[str, list[Line]]:
    """Return the lines of each run, by run id."""
    runs: dict[str, list[Line]] = {}
    for lines in logs.values():
        for line in lines:
            if line.get("runId"):
                runs.setdefault(line["runId"], []).append(line)
    return runs


def leave_out(logs: Logs, run_ids: Collection[str]) -> Logs:
    """Return the logs without the lines of these runs."""
    return {chat_id: [line for line in lines if line.get("runId") not in run_ids] for chat_id, lines in logs.items()}


def find_copies(logs: Logs, originals: Iterable[str]) -> set[str]:
    """Return the runs that are copies: they repeat a request of one of the chats `originals`, and are in
    another chat.
    """
    originals = {*originals}
    lines = (line for chat_id in originals for line in logs.get(chat_id, ()))
    asked = {get_request_id(line) for line in lines if line["_type"] == "query"}
    return {
        line["runId"]
        for chat_id, lines in logs.items()
        if chat_id not in originals
        for line in lines
        if line["_type"] == "query" and get_request_id(line) in asked
    }


def get_request_id(line: Line) -> str:
    return line["query"].get("requestId", "")  # none in a line that is erased


async def wait_for_runs(world: World) -> list[str]:
    """Wait until each run has ended in the log, without a reader: a takeover needs none."""
    unfinished: list[str] = []
    for _ in range(LOOKS):
        await asyncio.sleep(LOOK_S)
        if not (unfinished := list_unfinished(read_logs(world))):
            return []
    return [f"run {run_id} was not ended" for run_id in unfinished]


def list_unfinished(logs: Logs) -> list[str]:
    """Return the runs that have a query and no end."""
    lines = [line for lines in logs.values() for line in lines if line.get("runId")]
    ended = {line["runId"] for line in lines if line["_type"] == "run"}
    return [line["runId"] for line in lines if line["_type"] == "query" and line["runId"] not in ended]


async def wait_for_chats(judge: User, people: Iterable[User]) -> list[str]:
    """Check that each chat accepts another message after all earlier ones."""
    problems: list[str] = []
    people = [*people]
    chats = dict.fromkeys(asked.chat_id for user in people for asked in user.asked if asked.run_id)
    chats |= dict.fromkeys(fork.copy for user in people for fork in user.forks)
    for chat_id in chats:
        last = Asked(chat_id, new_uuid(), "the last question", "oneshot")
        await judge.ask(last)
        if last.outcome != "run.complete":
            problems.append(f"chat {chat_id} does not take the next message: {last.outcome}")
    return problems


def judge_copies(logs: Logs, copies: Collection[str], forked: Collection[str]) -> list[str]:
    """Check that each copy of a chat was answered.

    After a lost answer, the repeated request returns the same copy.
    """
    made = {chat_id for chat_id, lines in logs.items() for line in lines if line.get("runId") in copies}
    return [f"no answer named the copy {chat_id}" for chat_id in sorted(made - {*forked})]


def judge_chats(logs: Logs) -> list[str]:
    """Check that lines are numbered without gaps, and that each run has one query and one end."""
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
            stored = [line for line in lines if line.get("runId") == run_id and line["_type"] != REDACTED]
            generations = [line.get("_gen", 0) for line in stored]
            if generations != sorted(generations):
                problems.append(f"run {run_id} has lines of an owner that had lost it: {generations}")
            if kinds.count("run") != 1:
                problems.append(f"run {run_id} has {kinds.count('run')} ends in the log")
    return problems


def judge_interrupted(logs: Logs) -> list[str]:
    """Check that a run is given up only after the allowed number of its owners have died."""
    problems: list[str] = []
    for run_id, lines in split_runs(logs).items():
        ends = [line["error"]["code"] for line in lines if line["_type"] == "run" and "error" in line]
        events = [line["event"] for line in lines if line["_type"] == "event"]
        deaths = [event for event in events if _tells_death(event)]
        if "INTERRUPTED" in ends and len(deaths) < OWNERS_MAX:
            problems.append(f"run {run_id} was given up when {len(deaths)} of its owners had died")
    return problems


def _tells_death(event: dict[str, Any]) -> bool:
    """Return whether the event reports that the run itself, not a sub-agent or task of it, has lost its owner."""
    is_own = "subagentId" not in event and "taskId" not in event
    return event["type"] == "attempt.reset" and event["reason"] == "INTERRUPTED" and is_own
