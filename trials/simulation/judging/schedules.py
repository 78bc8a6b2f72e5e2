"""Schedules: each scheduled time starts one run, or has a reason why not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

from services.memory.storage.records.schedules import FIRINGS_MAX
from trials.simulation.judging.chats import Logs, get_request_id
from trials.simulation.postgres.faults import SEEN_AND_GONE

if TYPE_CHECKING:
    from trials.simulation.people.asked import Kept
    from trials.simulation.people.users import User

OUTCOMES = ("started", "skipped", "missed", "failed")

MINUTE_MS = 60_000


def judge_schedules(people: Iterable[User], logs: Logs, copies: Collection[str]) -> list[str]:
    counts: Counter[str] = Counter()
    runs: dict[str, str] = {}
    for lines in logs.values():
        for line in lines:
            if line["_type"] != "query" or line["runId"] in copies:
                continue
            if ":" in (request_id := get_request_id(line)):
                counts[request_id] += 1
                runs[request_id] = line["runId"]
    problems: list[str] = []
    for owner, kept in [(user, kept) for user in people for kept in user.kept]:
        # An unacknowledged trigger may have been read, and started, before it was taken back.
        ghosts_max = kept.tries if owner.story.counts[SEEN_AND_GONE] else 0
        problems += [f"schedule {kept.schedule_id}: {problem}" for problem in _judge(kept, counts, runs, ghosts_max)]
    return problems


def _judge(kept: Kept, counts: Counter[str], runs: dict[str, str], ghosts_max: int) -> list[str]:
    problems: list[str] = []
    firings = kept.last.firings
    is_whole = len(firings) < FIRINGS_MAX
    due = Counter(firing.due_at for firing in firings)
    problems += [f"{time} has {count} outcomes" for time, count in due.items() if count > 1]
    for firing in firings:
        name = f"{kept.schedule_id}:{firing.due_at}"
        if firing.outcome not in OUTCOMES:
            problems.append(f"{firing.due_at} has the outcome {firing.outcome!r}")
        if firing.outcome == "started" and (counts[name] != 1 or runs[name] != firing.run_id):
            problems.append(f"{firing.due_at} has started {firing.run_id}, and the logs have {counts[name]} runs of it")
    outcomes = {f"{kept.schedule_id}:{firing.due_at}": firing.outcome for firing in firings}
    for name, count in counts.items():
        if not name.startswith(f"{kept.schedule_id}:"):
            continue
        time = int(name.rpartition(":")[2])
        is_known = name in outcomes or not is_whole or time >= (kept.last.next_at or time)
        if count != 1 or not is_known or outcomes.get(name, "started") != "started":
            problems.append(f"{time} has {count} runs and the outcome {outcomes.get(name)!r}")
    if is_whole:
        problems += [f"the trigger of {time} was never begun" for time in {*kept.triggered_at} - {*due}]
        problems += _judge_times(kept, ghosts_max)
    return problems


def _judge_times(kept: Kept, ghosts_max: int) -> list[str]:
    """Check that all times up to the next one have an outcome, or are counted as passed by one."""
    schedule = kept.last
    if not schedule.cron:
        is_told = any(firing.due_at == schedule.once_at for firing in schedule.firings)
        return [] if is_told else [f"its one time {schedule.once_at} was never begun: {schedule}"]
    step_ms = int(schedule.cron.split()[0].removeprefix("*/")) * MINUTE_MS
    count = (schedule.next_at - 1) // step_ms - schedule.created_at // step_ms
    reported = sum(1 + firing.passed for firing in schedule.firings if firing.due_at not in kept.triggered_at)
    if not count <= reported <= count + ghosts_max:
        return [f"{count} times have come, and {reported} were told of: {schedule}"]
    return []
