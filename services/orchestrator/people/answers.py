"""Answers from Submit and AnswerGate: judged, committed, then passed to the waiting run.

Each kind of gate defines its differences (kind.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from functools import partial

from headrace.errors import InvalidRequest, NotFound, Overloaded
from headrace.v1 import agent_pb2, common_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.people import live_input
from services.orchestrator.people.access import check_answerer, check_rule, check_scope
from services.orchestrator.people.credentials import CredentialKind
from services.orchestrator.people.forms import find_answerers, find_result_schema, is_schema_known
from services.orchestrator.people.inputs import InputKind
from services.orchestrator.people.kind import ACCEPTED, Given, Judgement, Kind, check_payload
from services.orchestrator.people.votes import ApprovalKind
from services.orchestrator.run.control.gates import VOTE, Submission
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import acting_as, require_identity
from services.runtime.randomness import new_uuid

KINDS = (ApprovalKind(), CredentialKind(), InputKind(), Kind())

OVER = frozenset({"unmatched", "expired"})
"""Statuses of answers to a gate that is closed or never existed."""

DETAILS = {
    "accepted": "the run continues with it",
    "voted": "it counts, and others must approve too",
    "duplicate": "another submit came first",
    "expired": "the run waits no more",
    "unmatched": "the run does not wait for this id",
}


def find_kind(gate_id: str) -> Kind:
    """Return the kind of a gate by its id; functions of programs and unknown ids count as forms."""
    return next((kind for kind in KINDS if gate_id.startswith(kind.prefix)), KINDS[-1])


def check(request: agent_pb2.SubmitRequest) -> str:
    """Return the id that the submit addresses. Raises InvalidRequest."""
    if bool(request.tool_id) == bool(request.approval_id):
        raise InvalidRequest.of("toolId", "either toolId or approvalId must be set")
    find_kind(ids.APPROVAL if request.approval_id else request.tool_id).check(request.payload)
    return request.tool_id or request.approval_id


def hide_secrets(request: agent_pb2.SubmitRequest) -> agent_pb2.SubmitRequest:
    """Return the request without any secret it supplies, so that it may be stored."""
    kept = agent_pb2.SubmitRequest()
    kept.CopyFrom(request)
    kept.payload = find_kind(request.tool_id).hide_secret(request.payload)
    return kept


async def submit(run: Run, request: agent_pb2.SubmitRequest, tasks: asyncio.TaskGroup) -> agent_pb2.SubmitResponse:
    """Return `accepted` once the submit is committed.

    Raises:
        InvalidRequest: The payload is invalid, does not match the gate, or has arguments that the tool's schema or a
            rule refuses.
        PermissionDenied: The caller may not answer this gate, or not with these arguments.
        Claimed: Another client has claimed it.
        QueueFull: Too many submits came before the run waits for them.
        Overloaded: The run was just taken over, and its permissions or schema are not known yet.
    """
    gate_id = check(request)
    if request.chat_id and request.chat_id != run.chat_id:
        raise InvalidRequest.of("chatId", "is not the chat of this run")
    payload, request = request.payload, hide_secrets(request)
    caller, gate = require_identity(), run.gates.find(gate_id)
    if gate is None:
        return await _submit_unopened(run, gate_id, request, tasks)
    await check_answerer(gate, run.identity, caller)
    if run.feed.ended:
        return make_response(run.id, gate_id, Judgement("unmatched"))
    kind = find_kind(gate_id)
    kind.check_fit(gate.opened, request.payload)
    async with gate.answering:
        await gate.flush()
        judgement = await kind.judge(Given(run, gate, caller, request, payload, tasks))
        if judgement.status != "accepted":
            return make_response(run.id, gate_id, judgement)
        return await _take(run, gate_id, request, tasks, judgement)


async def _submit_unopened(
    run: Run, gate_id: str, request: agent_pb2.SubmitRequest, tasks: asyncio.TaskGroup
) -> agent_pb2.SubmitResponse:
    """Accept the result of a program's function, or an answer before its gate opens; raises the errors of `submit`."""
    caller, call = require_identity(), run.scopes.find_waiting_call(gate_id)
    if call is not None and not call.is_programs:
        check_scope(gate_id, caller)
        # A rule says who may answer once the gate is open.
        if find_answerers(call) is not None or not is_schema_known(call):
            return make_response(run.id, gate_id, Judgement("unmatched"))
    elif call is None and _is_to_be_restored(run, gate_id):
        raise Overloaded("the run is being taken over and has not reached this call yet; try again")
    if not run.is_waited_for(gate_id) or run.feed.ended:
        return make_response(run.id, gate_id, Judgement("unmatched"))
    check_rule(gate_id, common_pb2.Answerers(), run.identity, caller)
    check_payload(find_result_schema(call) if call is not None else "", request.payload)
    return await _take(run, gate_id, request, tasks)


def _is_to_be_restored(run: Run, gate_id: str) -> bool:
    """Return whether an earlier owner made the call and died before its gate was logged.

    Only when the replay reaches the call is its tool known, which decides who may answer, and how. Calls of programs
    need neither.
    """
    if not run.restored.awaits(gate_id):
        return False
    programs = {tool.name for tool in run.query.client_tools}
    pieces = (message.message for message in run.restored.messages() if message.tool_id == gate_id)
    return any(call.name not in programs for piece in pieces for call in piece.tool_calls)


async def _take(
    run: Run,
    gate_id: str,
    request: agent_pb2.SubmitRequest,
    tasks: asyncio.TaskGroup,
    judgement: Judgement = ACCEPTED,
) -> agent_pb2.SubmitResponse:
    caller = require_identity()
    outcome = run.gates.take(gate_id, request.request_id, caller.user)
    if outcome == "expired":
        return make_response(run.id, gate_id, Judgement(outcome))
    gate = run.gates.get(gate_id)
    if outcome == "accepted":
        event = agent_pb2.RequestSubmit(
            request_id=request.request_id or new_uuid(),
            chat_id=run.chat_id,
            run_id=run.id,
            tool_id=gate_id,
            payload=request.payload,
            view_id=request.view_id if request.HasField("view_id") else None,
            by=caller.user,
            credential=caller.credential or None,
        )
        fulfil = partial(gate.fulfil, Submission(request.payload, caller.user, caller.credential))
        others = () if judgement.grant is None else (judgement.grant,)
        with acting_as(run.identity):  # the chat belongs to the requester, not to the person who answers
            gate.answer_commit = live_input.publish(run, event, tasks, fulfil, *others)
    if gate.answer_commit is not None:  # an answer counts as second only if the log has the first
        await asyncio.shield(gate.answer_commit)
    if outcome == "duplicate":
        return make_response(run.id, gate_id, Judgement(outcome))
    grant = judgement.grant if outcome == "accepted" else _find_grant(run.feed.since(0), gate_id)
    return make_response(run.id, gate_id, Judgement(grant=grant))


async def answer_ended(peers: Peers, request: agent_pb2.SubmitRequest, by: str) -> agent_pb2.SubmitResponse:
    """Return the response to an answer of the user `by` to a run that has ended.

    Raises:
        NotFound: The user has no such run.
        Overloaded: The run is still active.
    """
    gate_id = check(request)
    chat = await stored_runs.get_chat(peers, memory_pb2.GetChatRequest(run_id=request.run_id))
    judged = judge_stored(chat.events, request, by)
    if judged.status in OVER and not stored_runs.has_ended(chat):
        await stored_runs.check_not_unfinished(peers, request.run_id)
    return make_response(request.run_id, gate_id, judged)


async def repeat_answer(peers: Peers, request: agent_pb2.SubmitRequest, by: str) -> agent_pb2.SubmitResponse | None:
    """Return how the log judges an answer that this process does not expect; None if it does not either.

    Another owner of the run may have accepted it, or another answer.
    """
    try:
        chat = await stored_runs.get_chat(peers, memory_pb2.GetChatRequest(run_id=request.run_id))
    except NotFound:
        return None
    judged = judge_stored(chat.events, request, by)
    return None if judged.status in OVER else make_response(request.run_id, check(request), judged)


def judge_stored(events: Sequence[agent_pb2.AgentDelta], request: agent_pb2.SubmitRequest, by: str) -> Judgement:
    """Judge an answer of the user `by` by a run's stored events: they may have this answer or another one."""
    gate_id, status = check(request), "unmatched"
    for event in events:
        match event.WhichOneof("payload"):
            case "request_submit" if event.request_submit.tool_id == gate_id:
                submit = event.request_submit
                if submit.request_id != request.request_id or submit.by not in ("", by):
                    return Judgement("duplicate")
                return Judgement(grant=_find_grant(events, gate_id))
            case "gate_step" if event.gate_step.gate_id == gate_id:
                step = event.gate_step
                if (step.step, step.by, step.request_id) == (VOTE, by, request.request_id):
                    return Judgement("voted", 0)
            case "tool_snapshot" if event.tool_snapshot.tool_id == gate_id and gate_id.startswith(ids.FRONTEND):
                status = "expired"
            case "gate_open" if event.gate_open.gate_id == gate_id:
                status = "expired"
            case "approval_ask" if event.approval_ask.approval_id == gate_id:
                status = "expired"
            case _:
                pass
    return Judgement(status)


def _find_grant(events: Iterable[agent_pb2.AgentDelta], gate_id: str) -> agent_pb2.GrantMake | None:
    """Return the grant that the gate's answer created; None without one."""
    made = (event.grant_make for event in events if event.HasField("grant_make"))
    return next((grant for grant in made if grant.gate_id == gate_id), None)


def make_response(run_id: str, gate_id: str, judgement: Judgement) -> agent_pb2.SubmitResponse:
    return agent_pb2.SubmitResponse(
        accepted=judgement.status in ("accepted", "voted"),
        status=judgement.status,
        run_id=run_id,
        tool_id=gate_id,
        detail=DETAILS[judgement.status],
        votes_missing=judgement.votes_missing,
        grant_id=judgement.grant.grant_id if judgement.grant is not None else None,
    )
