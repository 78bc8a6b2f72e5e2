"""Effects of tools: at most one effect per call of a `once` tool, and one for each result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import TYPE_CHECKING

from trials.simulation.judging.chats import Logs, split_runs
from trials.simulation.judging.gates import list_events
from trials.simulation.outside.outside import ONCE
from trials.simulation.people.gates import REPEATS

if TYPE_CHECKING:
    from trials.simulation.world.world import World


def judge_effects(world: World, logs: Logs, copies: Collection[str], erased: Collection[str]) -> list[str]:
    """Check that a `once` tool ran at most once per call, unless a person repeated it, and once for each result.

    Runs in `erased` are not checked, because approvals of their repeats are gone.
    """
    counts: Counter[tuple[str, str]] = Counter()
    for key, count in world.outside.once.items():
        run_id, call_id = key.split("/")[:2]
        if run_id not in erased:
            counts[run_id, call_id] += count
    again: Counter[tuple[str, str]] = Counter()
    results: Counter[tuple[str, str]] = Counter()
    for run_id, lines in split_runs(logs).items():
        if run_id in copies:
            continue
        asked = {
            event["approvalId"]: event["toolId"]
            for event in list_events(lines, "approval.ask")
            if REPEATS in event["reason"]
        }
        for event in list_events(lines, "approval.answer"):
            if event["approvalId"] in asked and event["decision"] != "reject":
                again[run_id, asked[event["approvalId"]]] += 1
        for line in lines:
            for message in line.get("messages", ()):
                if message["role"] == "tool" and message["name"] in ONCE and message["_ok"]:
                    results[run_id, message["tool_call_id"]] += 1
    problems = [
        f"the effect of call {call} was had {count} times, and people had it run again {again[call]} times"
        for call, count in counts.items()
        if count > 1 + again[call]
    ]
    for call, count in results.items():
        if not counts[call] or count != 1:
            problems.append(f"call {call} has {count} results in the log and had {counts[call]} effects")
    return problems
