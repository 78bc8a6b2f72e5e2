"""Gates: one decision each, the one that was accepted, and what follows from it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from tests.simulation.judging.chats import Line, Logs, split_runs
from tests.simulation.outside.outside import ASKS

if TYPE_CHECKING:
    from tests.simulation.people.gates import GateTry
    from tests.simulation.people.users import User
    from tests.simulation.world.world import World

STATUSES = ("accepted", "duplicate", "expired")
"""What may become of an answer to a gate that somebody has seen open."""


def list_events(lines: Iterable[Line], kind: str) -> list[dict[str, Any]]:
    return [line["event"] for line in lines if line["_type"] == "event" and line["event"]["type"] == kind]


def judge_gates(world: World, people: Iterable[User], logs: Logs, copies: Collection[str]) -> list[str]:
    problems: list[str] = []
    for run_id, lines in split_runs(logs).items():
        problems += [f"run {run_id}: {problem}" for problem in _judge_run(lines)]
        if run_id not in copies:
            problems += [f"run {run_id}: {problem}" for problem in _judge_calls(world, run_id, lines)]
    tries: dict[tuple[str, str], list[GateTry]] = {}
    for user in people:
        for one in user.gate_tries:
            tries.setdefault((one.run_id, one.gate_id), []).append(one)
    runs = split_runs(logs)
    for (run_id, gate_id), made in tries.items():
        problems += [f"gate {gate_id} of run {run_id}: {one}" for one in _judge_tries(made, runs.get(run_id, []))]
    return problems


def _judge_run(lines: list[Line]) -> list[str]:
    """Each gate opens once, closes once unless the run has ended before, and has one answer at most."""
    problems: list[str] = []
    opened = Counter(event["gateId"] for event in list_events(lines, "gate.open"))
    closed = Counter(event["gateId"] for event in list_events(lines, "gate.close"))
    submitted = Counter(event["toolId"] for event in list_events(lines, "request.submit"))
    decided = Counter(event["approvalId"] for event in list_events(lines, "approval.answer"))
    for what, counts in (("open", opened), ("close", closed), ("submit", submitted), ("decision", decided)):
        problems += [f"gate {gate} has {count} lines of {what}" for gate, count in counts.items() if count > 1]
    states = {event["gateId"]: event["state"] for event in list_events(lines, "gate.close")}
    for gate_id, state in states.items():
        if (state == "answered") != bool(submitted[gate_id]):
            problems.append(f"gate {gate_id} is {state} and has {submitted[gate_id]} answers")
    is_complete = any(line["_type"] == "run" and line["state"] == "completed" for line in lines)
    problems += [f"gate {gate} stays open in a completed run" for gate in opened if is_complete and not closed[gate]]
    return problems


def _judge_calls(world: World, run_id: str, lines: list[Line]) -> list[str]:
    """A call that needs approval has run with what a person has approved, and not without."""
    problems: list[str] = []
    calls: dict[str, list[str]] = {}
    payloads = {event["toolId"]: event["payload"] for event in list_events(lines, "request.submit")}
    for event in list_events(lines, "gate.open"):
        if event["kind"] == "approval":
            calls.setdefault(event["toolId"], []).append(event["gateId"])
    for (ran_in, call_id), given in world.outside.ran_with.items():
        if ran_in != run_id:
            continue
        answers = [_as_object(payloads[gate]) for gate in calls.get(call_id, ()) if gate in payloads]
        approved = [answer for answer in answers if answer["decision"] != "reject"]
        if not approved:
            problems.append(f"call {call_id} of {ASKS} has run, and nobody has approved it")
        edits = [json.dumps(answer["arguments"]) for answer in approved if answer["decision"] == "edit"]
        known = {json.dumps(json.loads(text)) for text in given}
        if edits and not known <= {*edits}:
            problems.append(f"call {call_id} of {ASKS} has run with {known}, and people wanted {edits}")
    return problems


def _judge_tries(tries: list[GateTry], lines: list[Line]) -> list[str]:
    """One answer is accepted, it is the one in the log, and each try is told so."""
    problems: list[str] = []
    accepted = {one.request_id for one in tries if one.status == "accepted"}
    if len(accepted) > 1:
        problems.append(f"{len(accepted)} answers were accepted")
    gate_id = tries[0].gate_id
    submits = [event for event in list_events(lines, "request.submit") if event["toolId"] == gate_id]
    stored = {event["requestId"]: _as_object(event["payload"]) for event in submits}
    for one in tries:
        if one.status not in STATUSES:
            problems.append(f"an answer was told {one.status}")
        if one.status == "accepted" and stored.get(one.request_id) != json.loads(one.payload):
            problems.append(f"{one.payload} was accepted, and the log has {stored}")
        if one.status != "accepted" and one.request_id in stored:
            problems.append(f"{one.payload} is in the log, and its sender was told {one.status}")
    return problems


def _as_object(payload: Any) -> Any:
    return json.loads(payload) if isinstance(payload, str) else payload
