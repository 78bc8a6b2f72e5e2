"""Gates: each has one decision, the accepted one, with its consequences."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from trials.simulation.judging.chats import Line, Logs, split_runs
from trials.simulation.outside.outside import ASKS, FIRST, REQUESTER, RULES, SECOND
from trials.simulation.people.gates import CHANGED

if TYPE_CHECKING:
    from trials.simulation.people.asked import GateTry
    from trials.simulation.people.users import User
    from trials.simulation.world.world import World

CLAIMED = "CLAIMED"

STATUSES = ("accepted", "duplicate", "expired", "voted", CLAIMED)
"""Possible results of an answer to a gate that was seen open."""

DENIED = {"four eyes": (REQUESTER,), "escalating": (REQUESTER, SECOND)}
"""Users who may be refused, by the gate's rule: the second one until others may answer, too."""

VOTED, TAKEN = "vote", "request.submit"


def list_events(lines: Iterable[Line], kind: str) -> list[dict[str, Any]]:
    return [line["event"] for line in lines if line["_type"] == "event" and line["event"]["type"] == kind]


def judge_gates(
    world: World, people: Iterable[User], logs: Logs, copies: Collection[str], erased: Collection[str]
) -> list[str]:
    """Judge the gates of all runs except those in `erased`."""
    problems: list[str] = []
    for run_id, lines in split_runs(logs).items():
        problems += [f"run {run_id}: {problem}" for problem in _judge_run(lines)]
        if run_id not in copies:
            problems += [f"run {run_id}: {problem}" for problem in _judge_calls(world, run_id, lines)]
            problems += [f"run {run_id}: {problem}" for problem in _judge_steps(world, lines)]
    tries: dict[tuple[str, str], list[GateTry]] = {}
    for user in people:
        for one in user.gate_tries:
            if one.run_id not in erased:
                tries.setdefault((one.run_id, one.gate_id), []).append(one)
    runs = split_runs(logs)
    for (run_id, gate_id), made in tries.items():
        problems += [
            f"gate {gate_id} of run {run_id}: {one}" for one in _judge_tries(made, runs.get(run_id, []), world)
        ]
    return problems


def _judge_run(lines: list[Line]) -> list[str]:
    """Check that each gate opens once, closes once unless the run ended first, and has at most one answer."""
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
    """Check that a call that needs approval ran only with approved arguments."""
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
            problems.append(f"call {call_id} of {ASKS} has run without approval")
        edits = [json.dumps(answer["arguments"]) for answer in approved if answer["decision"] == "edit"]
        known = {json.dumps(json.loads(text)) for text in given}
        if edits and not known <= {*edits}:
            problems.append(f"call {call_id} of {ASKS} has run with {known}, and people wanted {edits}")
    return problems


def _judge_tries(tries: list[GateTry], lines: list[Line], world: World) -> list[str]:
    """Check that one answer is accepted, that it is the one in the log, and that each attempt got the right
    status.
    """
    problems: list[str] = []
    accepted = {one.request_id for one in tries if one.status == "accepted"}
    if len(accepted) > 1:
        problems.append(f"{len(accepted)} answers were accepted")
    gate_id = tries[0].gate_id
    submits = [event for event in list_events(lines, "request.submit") if event["toolId"] == gate_id]
    stored = {event["requestId"]: _as_object(event["payload"]) for event in submits}
    votes = {event["requestId"] for event in list_steps(lines, gate_id) if event["step"] == VOTED}
    asked = next((event["toolName"] for event in list_events(lines, "gate.open") if event["gateId"] == gate_id), "")
    rule = world.outside.gate_rule if asked == ASKS else ""
    for one in tries:
        is_denied = one.status == "PERMISSION_DENIED" and one.who in DENIED.get(rule, ())
        is_changed = one.status == CHANGED and rule == "two" and _as_object(one.payload)["decision"] == "approve"
        if one.status not in STATUSES and not is_denied and not is_changed:
            problems.append(f"an answer of {one.who} received {one.status}")
        if one.status == "voted" and one.request_id not in votes:
            problems.append(f"{one.payload} was acknowledged as a vote, and the log lacks it")
        if one.status == "accepted" and stored.get(one.request_id) != json.loads(one.payload):
            problems.append(f"{one.payload} was accepted, and the log has {stored}")
        # A client that was refused because of another's claim may give the same answer after the claim is
        # released.
        is_given_again = one.status == CLAIMED and one.request_id in accepted
        if one.status != "accepted" and one.request_id in stored and not is_given_again:
            problems.append(f"{one.payload} is in the log, and its sender received {one.status}")
    return problems


def list_steps(lines: Iterable[Line], gate_id: str) -> list[dict[str, Any]]:
    return [event for event in list_events(lines, "gate.step") if event["gateId"] == gate_id]


def _judge_steps(world: World, lines: list[Line]) -> list[str]:
    """Check that each gate was decided by enough allowed users, and not against another's claim."""
    problems: list[str] = []
    for opened in list_events(lines, "gate.open"):
        gate_id = opened["gateId"]
        steps = list_steps(lines, gate_id)
        taken = next((event for event in list_events(lines, TAKEN) if event["toolId"] == gate_id), None)
        rule = world.outside.gate_rule if opened["toolName"] == ASKS else ""
        found = [*_judge_times(steps), *_judge_claims(world, steps, taken)]
        if rule and opened["kind"] == "approval" and taken is not None:
            found += _judge_answerers(rule, steps, taken)
        problems += [f"gate {gate_id}: {problem}" for problem in found]
    return problems


def _judge_times(steps: list[dict[str, Any]]) -> list[str]:
    counts = Counter(event["step"] for event in steps if event["step"] in ("reminded", "escalated"))
    return [f"it was {what} {count} times" for what, count in counts.items() if count > 1]


def _judge_answerers(rule: str, steps: list[dict[str, Any]], taken: dict[str, Any]) -> list[str]:
    given = _as_object(taken["payload"])
    by, problems = [taken["by"]], list[str]()
    votes = [event for event in steps if event["step"] == VOTED]
    if rule == "two" and given["decision"] != "reject":
        edits = [at for at, event in enumerate(votes) if event["decision"] == "edit"]
        counted = votes[edits[-1] :] if edits else votes
        if len({taken["by"], *(event["by"] for event in counted)}) < RULES[rule].count:
            problems.append(f"{taken} has decided after the votes {votes}")
    by += [event["by"] for event in votes]
    if len({*by[1:]}) != len(by[1:]) and not any(event["decision"] == "edit" for event in votes):
        problems.append(f"a person has voted twice: {votes}")
    if rule == "four eyes" and REQUESTER in by:
        problems.append("who asked has answered, and must not")
    passed = {name for event in steps for name in event.get("to", ())} | {f"user:{FIRST}"}
    if rule == "escalating" and not {f"user:{who}" for who in by} <= passed:
        problems.append(f"{by} have answered, and {passed} might")
    return problems


def _judge_claims(world: World, steps: list[dict[str, Any]], taken: dict[str, Any] | None) -> list[str]:
    """Check that no other client claims, votes or approves while a claim holds; owners' clocks may differ."""
    problems: list[str] = []
    slack_ms, claim = 2000 * world.skew_s, None
    for event in [*steps, *([taken] if taken is not None else [])]:
        holds = claim is not None and event["timestamp"] < claim["until"] - slack_ms
        step = event.get("step", TAKEN)
        if holds and claim is not None:
            is_other = (event.get("by"), event.get("holder", claim["holder"])) != (claim["by"], claim["holder"])
            is_reject = step == TAKEN and _as_object(event["payload"]).get("decision") == "reject"
            if is_other and step in ("claimed", VOTED, TAKEN) and not is_reject:
                problems.append(f"{event} is in the log while {claim} holds")
        if step == "claimed":
            claim = event
        elif step == "released" and claim is not None and event.get("holder") == claim["holder"]:
            claim = None
    return problems


def _as_object(payload: Any) -> Any:
    return json.loads(payload) if isinstance(payload, str) else payload
