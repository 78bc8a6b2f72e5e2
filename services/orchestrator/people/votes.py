"""Judges a person's answer to an approval, and counts votes, before anything is committed.

An edit restarts the count of votes, so all approvers have seen the same arguments.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace

from headrace.errors import InvalidRequest, PermissionDenied
from headrace.v1 import agent_pb2, common_pb2
from services.orchestrator import ids
from services.orchestrator.people.access import check_rule
from services.orchestrator.people.approvals import ApprovalAnswer, parse_answer
from services.orchestrator.people.grants import check_grant, make_grant
from services.orchestrator.people.kind import ACCEPTED, Given, Judgement, Kind
from services.orchestrator.people.steps import commit_step
from services.orchestrator.run.answers.call import find_violation
from services.orchestrator.run.approvals.verdict import verdict
from services.orchestrator.run.control.gates import VOTE, Gate
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import Identity

FIELD, SHA256_FIELD = "payload.arguments", "payload.argumentsSha256"

EDIT_BYTES_MAX = 65_536
"""Maximum bytes of a vote's arguments; a gate stores them with each vote."""


class ApprovalKind(Kind):
    """If several users must approve, all answers except the last are votes."""

    prefix = ids.APPROVAL

    def check(self, payload: str) -> None:
        parse_answer(payload)

    async def judge(self, given: Given) -> Judgement:
        run, gate, caller, answer = given.run, given.gate, given.caller, parse_answer(given.payload)
        has_voted = gate.has_step(VOTE, caller.user, given.request.request_id)
        if not given.would_be_first:
            return Judgement("voted", 0) if has_voted else ACCEPTED
        needed = await _count_needed(run, gate, answer, caller)
        if has_voted:
            return Judgement("voted", max(0, needed - len(gate.votes)))
        await _check_seen(gate, answer)
        await check_grant(run, gate, answer, caller)
        if answer.decision != "reject":
            gate.find_claim(caller.user, given.request.holder)
        missing = _count_missing(gate, answer, caller, needed)
        if missing is None:
            return Judgement("duplicate")
        # Once more: it may have expired while it was judged.
        if missing and given.would_be_first:
            await _commit_vote(given, answer)
            return Judgement("voted", missing)
        return Judgement(grant=await make_grant(run, gate, answer, caller))


async def _count_needed(run: Run, gate: Gate, answer: ApprovalAnswer, caller: Identity) -> int:
    """Return the number of users who must approve; edited arguments are judged as if the model had sent them.

    Raises:
        InvalidRequest: The tool's schema or a rule refuses the arguments.
        PermissionDenied: With these arguments the rules require other answerers than the caller; or several users must
            approve, and without authentication they cannot be distinguished.
    """
    if answer.decision == "reject":
        return 1
    needed = gate.answerers.count or 1
    if edited := answer.arguments or gate.arguments:
        call = replace(await gate.wait_for_call(), params=edited)
        if problem := find_violation(call):
            path, broken = problem
            raise InvalidRequest.of(FIELD + path, f"the schema of {call.name} refuses it: {broken}")
        found = await verdict(run.rules, call)
        if found.then == "deny":
            raise InvalidRequest.of(FIELD, f"not allowed here: {found.reason}")
        rule = found.answerers or common_pb2.Answerers()
        if found.then == "ask" and rule != gate.opened.answerers:
            check_rule(gate.gate_id, rule, run.identity, caller)
            needed = max(needed, rule.count)
    if needed > 1 and not caller.credential:
        why = f"{needed} users must approve, and without authentication everybody is the same user"
        raise PermissionDenied(f"you may not answer this gate: {why}", gateId=gate.gate_id)
    return needed


async def _check_seen(gate: Gate, answer: ApprovalAnswer) -> None:
    """Refuse an approval of arguments too long to be shown in the event, unless it states their hash.

    Raises:
        InvalidRequest: The hash is missing, or belongs to other arguments.
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


def _count_missing(gate: Gate, answer: ApprovalAnswer, caller: Identity, needed: int) -> int | None:
    """Return the number of further approvals needed; None if the caller, or a user who shares an API key with the
    caller, has already approved.

    Raises:
        InvalidRequest: It approves without arguments, after a vote has changed them.
    """
    if answer.decision == "reject":
        return 0
    if _is_new_edit(gate, answer):
        return needed - 1
    if any(not caller.persons.isdisjoint((vote.by, *vote.makers)) for vote in gate.votes):
        return None
    if answer.decision == "approve" and gate.arguments:
        why = "a vote has changed the arguments: approve them with decision edit and the same arguments"
        raise InvalidRequest.of(FIELD, why)
    return max(0, needed - len(gate.votes) - 1)


def _is_new_edit(gate: Gate, answer: ApprovalAnswer) -> bool:
    """Return whether the answer's arguments differ from those that the votes approve."""
    return answer.decision == "edit" and _normalize(answer.arguments) != _normalize(gate.arguments)


def _normalize(arguments: str) -> str:
    # As text: in Python 1, 1.0 and true are equal.
    return json.dumps(json.loads(arguments), sort_keys=True) if arguments else ""


async def _commit_vote(given: Given, answer: ApprovalAnswer) -> None:
    """Return when the vote is in the log.

    Raises:
        InvalidRequest: The arguments that others must approve are too long.
        QueueFull: There are too many votes.
    """
    is_edit = _is_new_edit(given.gate, answer)
    if is_edit and len(answer.arguments.encode()) > EDIT_BYTES_MAX:
        raise InvalidRequest.of(FIELD, f"must have at most {EDIT_BYTES_MAX:,} bytes where others approve them too")
    step = agent_pb2.GateStep(
        gate_id=given.gate.gate_id,
        step=VOTE,
        makers=sorted(given.caller.makers),
        note=answer.note or None,
        decision="edit" if is_edit else "approve",
        arguments=answer.arguments if is_edit else None,
        request_id=given.request.request_id or None,
        grant=answer.grant or None,
        grant_ms=answer.grant_ms if answer.grant else None,
    )
    await commit_step(given.run, given.gate, step, given.tasks)
