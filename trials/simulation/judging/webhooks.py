"""Webhooks: each event is delivered at least once, in the log's order on first delivery, and only if it happened."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from trials.simulation.judging.chats import Line, Logs, leave_out, read_logs

if TYPE_CHECKING:
    from trials.simulation.world.world import World

LOOKS, LOOK_S = 60, 15.0
"""How long undelivered events may take: a dead process's claim holds for a minute, and each retry waits as long
as the delivery has already taken.
"""

ENDED, OPENED = "headrace.run.ended", "headrace.gate.opened"
STEPS = {"reminded": "headrace.gate.reminded", "escalated": "headrace.gate.escalated"}


async def judge_webhook(world: World, copies: Collection[str], erased: Collection[str]) -> list[str]:
    """Wait for all due events and compare them with the log; any events of runs in `erased` are allowed."""
    if world.hooked_ms is None:
        return []
    world.receiver.is_judged = True
    missing: list[str] = []
    for _ in range(LOOKS):
        reported = {_name(event) for event in world.receiver.taken}
        wanted = list_wanted(leave_out(read_logs(world), erased), copies, world.hooked_ms)
        missing = [
            f"no webhook call reported {name}" for names in wanted.values() for name in names if name not in reported
        ]
        if not missing:
            break
        await asyncio.sleep(LOOK_S)
    taken = [event for event in world.receiver.taken if _get_run_id(event) not in erased]
    return [*missing, *_judge_order(taken, leave_out(read_logs(world), erased), copies, world.hooked_ms)]


def list_wanted(logs: Logs, copies: Collection[str], since_ms: float) -> dict[str, list[str]]:
    """Return the events caused by each chat's lines, in order, without those of copies and before `since_ms`."""
    return {
        chat_id: [
            name
            for line in lines
            if line.get("runId") and line["runId"] not in copies and line["updatedAt"] > since_ms
            for name in _name_line(line)
        ]
        for chat_id, lines in logs.items()
    }


def _name_line(line: Line) -> Iterator[str]:
    event = line.get("event", {})
    if line["_type"] == "run":
        yield f"{ENDED} {line['runId']} "
    elif event.get("type") == "gate.open":
        yield f"{OPENED} {line['runId']} {event['gateId']}"
    elif event.get("type") == "gate.step" and event["step"] in STEPS:
        yield f"{STEPS[event['step']]} {line['runId']} {event['gateId']}"


def _name(event: dict[str, Any]) -> str:
    return f"{event['type']} {_get_run_id(event)} {event['data'].get('gateId', '')}"


def _get_run_id(event: dict[str, Any]) -> str:
    return event["data"].get("runId", "")


def _judge_order(taken: Sequence[dict[str, Any]], logs: Logs, copies: Collection[str], since_ms: float) -> list[str]:
    """Check that the receiver gets each event for the first time after the earlier ones of its chat."""
    problems: list[str] = []
    for chat_id, wanted in list_wanted(logs, copies, since_ms).items():
        first = list(dict.fromkeys(_name(event) for event in taken if event["subject"] == chat_id))
        received = [name for name in first if name in wanted]
        expected = [name for name in wanted if name in received]
        if received != expected:
            problems.append(f"the webhook received chat {chat_id} in another order: {received}, not {expected}")
        known = {*_list_all(logs, chat_id)}
        kinds = (ENDED, OPENED, *STEPS.values())
        problems += [
            f"the webhook received {name}, which is not in the log"
            for name in first
            if name.startswith(kinds) and name not in known
        ]
    return problems


def _list_all(logs: Logs, chat_id: str) -> Iterator[str]:
    for line in logs.get(chat_id, ()):
        if line.get("runId"):
            yield from _name_line(line)
