"""Judges a person's answer to an approval, and counts votes, before anything of it is committed.

An edit begins the count of votes anew: all who approve have seen the same arguments.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from functools import partial

from headrace.errors import InvalidRequest, PermissionDenied
from headrace.shown_text import make_visible
from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator.calls.gates.ask_person import ApprovalAnswer
from services.orchestrator.calls.gates.edited_call import FIELD, judge_edit
from services.orchestrator.lifecycle.live_calls import live_input
from services.orchestrator.run.control.gate_state import VOTE, GateState
from services.orchestrator.run.run import Run
from services.runtime.auth.answerers import REQUESTER, may_answer
from services.runtime.auth.identity import Identity, acting_as

SHA256_FIELD = "payload.argumentsSha256"

EDIT_BYTES_MAX = 65_536
"""Of the arguments of a vote: a gate keeps as many as it has votes."""


async def judge_answer(run: Run, gate: GateState, answer: ApprovalAnswer, caller: Identity) -> int:
    """Return how many users must approve in all; edited arguments are judged as if the model had sent them.

    Raises:
        InvalidRequest: The tool's schema or a rule refuses the arguments.
        PermissionDenied: With these arguments the rules ask others, and the caller is none of them; or several must
            approve, and nobody can be told from another.
    """
    if answer.decision == "reject":
        return 1
    needed = gate.answerers.count or 1
    if arguments := answer.arguments or gate.arguments:
        found = await judge_edit(run.rules, await gate.wait_for_call(), arguments)
        rule = found.answerers or common_pb2.Answerers()
        if found.then == "ask" and rule != gate.opened.answerers:
            check_rule(gate.gate_id, rule, run.identity, caller)
            needed = max(needed, rule.count)
    if needed > 1 and not caller.credential:
        why = f"{needed} users must approve, and without authentication everybody is the same user"
        raise PermissionDenied(f"you may not answer this gate: {why}", gateId=gate.gate_id)
    return needed


async def check_seen(gate: GateState, answer: ApprovalAnswer) -> None:
    """Refuse an approve of arguments that are too long to be shown unasked, unless it says which ones they were.

    Raises:
        InvalidRequest: The hash is missing, or is another's.
    """
    given = answer.arguments_sha256
    if answer.decision != "approve" or (given is None and not gate.opened.arguments_chars):
        return
    call = await gate.wait_for_call()
    if given != hash_arguments(call.effective):
        what = f"the call's {len(call.effective):,} characters of arguments"
        raise InvalidRequest.of(SHA256_FIELD, f"must be the SHA-256 of {what}, all of which GetGate returns with it")


def hash_arguments(arguments: str) -> str:
    return hashlib.sha256(arguments.encode()).hexdigest()


def find_missing(gate: GateState, answer: ApprovalAnswer, caller: Identity, needed: int) -> int | None:
    """Return how many others must approve after this answer; None where the caller has approved already, or one with
    whom the caller shares an API key.

    Raises:
        InvalidRequest: It approves without saying which arguments, after a vote has changed them.
    """
    if answer.decision == "reject":
        return 0
    if is_new_edit(gate, answer):
        return needed - 1
    if any(not caller.persons.isdisjoint((vote.by, *vote.makers)) for vote in gate.votes):
        return None
    if answer.decision == "approve" and gate.arguments:
        why = "a vote has changed the arguments: approve them with decision edit and the same arguments"
        raise InvalidRequest.of(FIELD, why)
    return max(0, needed - len(gate.votes) - 1)


def is_new_edit(gate: GateState, answer: ApprovalAnswer) -> bool:
    """Say whether the answer has other arguments than those that the votes are for."""
    return answer.decision == "edit" and _normalize(answer.arguments) != _normalize(gate.arguments)


def _normalize(arguments: str) -> str:
    # As text: in Python 1, 1.0 and true are equal.
    return json.dumps(json.loads(arguments), sort_keys=True) if arguments else ""


async def commit_vote(
    run: Run,
    gate: GateState,
    request: agent_pb2.SubmitRequest,
    answer: ApprovalAnswer,
    caller: Identity,
    tasks: asyncio.TaskGroup,
) -> None:
    """Return when the log has the vote.

    Raises:
        InvalidRequest: The arguments that others are to approve are too long.
        QueueFull: Too many have voted.
    """
    is_edit = is_new_edit(gate, answer)
    if is_edit and len(answer.arguments.encode()) > EDIT_BYTES_MAX:
        raise InvalidRequest.of(FIELD, f"must have at most {EDIT_BYTES_MAX:,} bytes where others approve them too")
    step = agent_pb2.GateStep(
        gate_id=gate.gate_id,
        step=VOTE,
        by=caller.user,
        credential=caller.credential or None,
        makers=sorted(caller.makers),
        note=answer.note or None,
        decision="edit" if is_edit else "approve",
        arguments=answer.arguments if is_edit else None,
        request_id=request.request_id or None,
        grant=answer.grant or None,
        grant_ms=answer.grant_ms if answer.grant else None,
    )
    await commit_step(run, gate, step, tasks)


async def commit_step(run: Run, gate: GateState, step: agent_pb2.GateStep, tasks: asyncio.TaskGroup) -> None:
    """Return when the log has the step, of which the caller holds `answering`. Raises QueueFull."""
    gate.check_room(step.step)
    if step.HasField("note"):
        step.note = make_visible(step.note)
    with acting_as(run.identity):  # the chat is the requester's, whoever answers
        gate.committing = live_input.publish(run, step, tasks, partial(gate.note, step))
    await gate.settle()


def check_scope(gate_id: str, caller: Identity) -> None:
    """Raises PermissionDenied."""
    if "answer" not in caller.scopes:
        raise PermissionDenied("this credential has no scope 'answer'", scope="answer", gateId=gate_id)


async def check_answerer(gate: GateState, requester: Identity, caller: Identity) -> None:
    """Raises PermissionDenied, or as `is_answerer`."""
    check_scope(gate.gate_id, caller)
    if not await is_answerer(gate, requester, caller):
        check_rule(gate.gate_id, gate.answerers, requester, caller)


async def is_answerer(gate: GateState, requester: Identity, caller: Identity) -> bool:
    """Say whether the caller may answer, once this process knows what the log has: lists may name the caller before.

    Raises:
        Overloaded: That takes too long.
        HeadraceError: The log refused the gate's last step.
    """
    if _is_named(gate, requester, caller):
        return True
    await gate.catch_up()
    return _is_named(gate, requester, caller)


def _is_named(gate: GateState, requester: Identity, caller: Identity) -> bool:
    rule = gate.answerers
    return may_answer(rule.any_of, requester, caller, not_requester=rule.not_requester)


def check_rule(gate_id: str, rule: common_pb2.Answerers, requester: Identity, caller: Identity) -> None:
    """Raises PermissionDenied."""
    if may_answer(rule.any_of, requester, caller, not_requester=rule.not_requester):
        return
    if rule.not_requester and caller == requester:
        why = "four eyes: whoever asked may not answer, and without authentication everybody is the same user"
    elif rule.not_requester and (shared := caller.persons & requester.persons):
        why = f"four eyes: {min(shared)!r} knows your API key and the requester's; ConfirmKey makes yours your own"
    else:
        why = f"it is for {', '.join(rule.any_of) or REQUESTER}"
    raise PermissionDenied(f"you may not answer this gate: {why}", gateId=gate_id)
