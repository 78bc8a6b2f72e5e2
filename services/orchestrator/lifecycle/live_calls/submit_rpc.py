"""Submit: a person's decision reaches the log, then the run that waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial

from headrace.errors import InvalidRequest, NotFound, Overloaded
from headrace.v1 import agent_pb2, common_pb2, gates_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.calls.executor import find_answerers
from services.orchestrator.calls.gates import ask_person
from services.orchestrator.calls.gates.ask_credential import hide_secret, parse_credential
from services.orchestrator.calls.gates.ask_input import check_answer
from services.orchestrator.calls.results import check_payload, find_result_schema, is_schema_known
from services.orchestrator.lifecycle.live_calls import approval_answers, approval_grants, live_input
from services.orchestrator.lifecycle.live_calls.approval_answers import (
    check_answerer,
    check_rule,
    check_scope,
    is_answerer,
)
from services.orchestrator.lifecycle.live_calls.unknown_gates import OPEN
from services.orchestrator.lifecycle.live_runs import LiveRuns
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers
from services.orchestrator.run.control.gate_state import VOTE, GateState
from services.orchestrator.run.control.waits import Submission
from services.orchestrator.run.run import Run
from services.runtime.auth import identity
from services.runtime.auth.answerers import may_answer
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.randomness import new_uuid
from services.runtime.rpc.call_ids import forward_metadata
from services.runtime.rpc.peer_calls import translating_peer_errors

DETAILS = {
    "accepted": "the run goes on with it",
    "voted": "it counts, and others must approve too",
    "duplicate": "another submit came first",
    "expired": "the run waits no more",
    "unmatched": "the run does not wait for this id",
}


def check(request: agent_pb2.SubmitRequest) -> str:
    """Return the id that the submit is for. Raises InvalidRequest."""
    if bool(request.tool_id) == bool(request.approval_id):
        raise InvalidRequest.of("toolId", "either toolId or approvalId must be set")
    if request.approval_id or request.tool_id.startswith(ids.APPROVAL):
        ask_person.parse_answer(request.payload)
    elif request.tool_id.startswith(ids.CREDENTIAL):
        parse_credential(request.payload)
    return request.tool_id or request.approval_id


def hide_secrets(request: agent_pb2.SubmitRequest) -> agent_pb2.SubmitRequest:
    """Return the request as it may be kept: without the secret of an answer that supplies one."""
    if not request.tool_id.startswith(ids.CREDENTIAL):
        return request
    kept = agent_pb2.SubmitRequest()
    kept.CopyFrom(request)
    kept.payload = hide_secret(parse_credential(request.payload))
    return kept


async def submit(run: Run, request: agent_pb2.SubmitRequest, tasks: asyncio.TaskGroup) -> agent_pb2.SubmitResponse:
    """Return `accepted` once the submit is committed.

    Raises:
        InvalidRequest: The payload is invalid, does not fit what the gate accepts, or has arguments that the tool's
            schema or a rule refuses.
        PermissionDenied: The caller may not answer this gate, or not with these arguments.
        Claimed: Another client has claimed it.
        QueueFull: Too many came before their waits.
        Overloaded: The run was just taken over, and it is not known yet who may answer, and what.
    """
    wait_id = check(request)
    if request.chat_id and request.chat_id != run.chat_id:
        raise InvalidRequest.of("chatId", "is not the chat of this run")
    given, request = request.payload, hide_secrets(request)
    caller, gate = identity.require_identity(), run.waits.find_gate(wait_id)
    if gate is not None:
        await check_answerer(gate, run.identity, caller)
    elif (call := run.scopes.find_waiting_call(wait_id)) is not None and not call.is_programs:
        check_scope(wait_id, caller)
        # A rule says who may answer once the gate is open.
        if find_answerers(call) is not None or not is_schema_known(call):
            return response(run.id, wait_id, "unmatched")
    elif _is_to_be_replayed(run, wait_id):
        raise Overloaded("the run is being taken over and has not come to this call yet; try again")
    if not run.is_waited_for(wait_id) or run.feed.ended:
        return response(run.id, wait_id, "unmatched")
    if gate is None:  # a function of the program that asked
        check_rule(wait_id, common_pb2.Answerers(), run.identity, caller)
    if gate is not None and wait_id.startswith(ids.INPUT):
        check_answer(gate.opened, request.payload)
    else:
        check_payload(gate.opened.result_schema if gate is not None else _find_schema(run, wait_id), request.payload)
    if gate is None:
        return await _take(run, wait_id, request, tasks)
    async with gate.answering:
        await gate.settle()
        if wait_id.startswith(ids.APPROVAL):
            return await _answer_approval(run, gate, request, tasks)
        if run.waits.foresee_claim(wait_id, request.request_id, caller.user) == "accepted":
            run.claims.find(wait_id, caller.user, request.holder)
            if wait_id.startswith(ids.CREDENTIAL):
                _keep_secret(run, gate, given)
        return await _take(run, wait_id, request, tasks)


def _keep_secret(run: Run, gate: GateState, payload: str) -> None:
    """Keep it for the run's calls. It is there before the answer is: whoever waits for that then has it."""
    if secret := parse_credential(payload).secret:
        run.credentials.check_room(gate.opened.need.name, secret)
        run.credentials.keep(gate.opened.need.name, secret)


async def _answer_approval(
    run: Run, gate: GateState, request: agent_pb2.SubmitRequest, tasks: asyncio.TaskGroup
) -> agent_pb2.SubmitResponse:
    """Take an answer that decides, or a vote of several; the caller holds the gate's `answering`."""
    wait_id, caller, answer = gate.gate_id, identity.require_identity(), ask_person.parse_answer(request.payload)
    if run.waits.foresee_claim(wait_id, request.request_id, caller.user) == "accepted":
        needed = await approval_answers.judge_answer(run, gate, answer, caller)
        if gate.has_step(VOTE, caller.user, request.request_id):
            return response(run.id, wait_id, "voted", max(0, needed - len(gate.votes)))
        await approval_answers.check_seen(gate, answer)
        await approval_grants.check_grant(run, gate, answer, caller)
        if answer.decision != "reject":
            run.claims.find(wait_id, caller.user, request.holder)
        missing = approval_answers.find_missing(gate, answer, caller, needed)
        if missing is None:
            return response(run.id, wait_id, "duplicate")
        # Once more: it may have expired while it was judged.
        if missing and run.waits.foresee_claim(wait_id, request.request_id, caller.user) == "accepted":
            await approval_answers.commit_vote(run, gate, request, answer, caller, tasks)
            return response(run.id, wait_id, "voted", missing)
    elif gate.has_step(VOTE, caller.user, request.request_id):
        return response(run.id, wait_id, "voted", 0)
    return await _take(run, wait_id, request, tasks, await approval_grants.make_grant(run, gate, answer, caller))


async def _take(
    run: Run,
    wait_id: str,
    request: agent_pb2.SubmitRequest,
    tasks: asyncio.TaskGroup,
    grant: agent_pb2.GrantMake | None = None,
) -> agent_pb2.SubmitResponse:
    caller = identity.require_identity()
    claim = run.waits.claim(wait_id, request.request_id, caller.user)
    if claim == "accepted":
        event = agent_pb2.RequestSubmit(
            request_id=request.request_id or new_uuid(),
            chat_id=run.chat_id,
            run_id=run.id,
            tool_id=wait_id,
            payload=request.payload,
            view_id=request.view_id if request.HasField("view_id") else None,
            by=caller.user,
            credential=caller.credential or None,
        )
        fulfil = partial(run.waits.fulfil, wait_id, Submission(request.payload, caller.user, caller.credential))
        with acting_as(run.identity):  # the chat is the requester's, whoever answers
            beside = () if grant is None else (grant,)
            run.waits.note_commit(wait_id, live_input.publish(run, event, tasks, fulfil, *beside))
    if claim == "expired":
        return response(run.id, wait_id, claim)
    await run.waits.wait_for_commit(wait_id)  # nothing is second to what the log has not
    if claim == "duplicate":
        return response(run.id, wait_id, claim)
    if claim == "repeated" and wait_id.startswith(ids.APPROVAL):
        return response(run.id, wait_id, "accepted", grant_id=_find_grant(run.feed.since(0), wait_id))
    return response(run.id, wait_id, "accepted", grant_id=grant.grant_id if grant is not None else None)


def _is_to_be_replayed(run: Run, wait_id: str) -> bool:
    """Say whether an earlier owner has made the call and died before its gate was in the log: the call's tool, which
    says who may answer, and what, is known when the replay has come to it. Calls of programs have neither."""
    if run.scopes.find_waiting_call(wait_id) is not None or not run.recording.awaits(wait_id):
        return False
    programs = {tool.name for tool in run.query.client_tools}
    pieces = (message.message for message in run.recording.messages() if message.tool_id == wait_id)
    return any(call.name not in programs for piece in pieces for call in piece.tool_calls)


def _find_schema(run: Run, wait_id: str) -> str:
    call = run.scopes.find_waiting_call(wait_id)
    return find_result_schema(call) if call is not None else ""


async def find_requester(live: LiveRuns, peers: Peers, run_id: str, wait_id: str) -> Identity:
    """Return whose run it is where the caller may see its gate; the caller's own identity otherwise."""
    caller = identity.require_identity()
    run = live.find_of_tenant(run_id)
    if run is not None and run.identity == caller:
        return caller
    # One that is not known here, or whom it was passed to, may be so by an owner that has the run by now.
    gate = run.waits.find_gate(wait_id) if run is not None else None
    may_do_all = "operate" in caller.scopes
    if run is not None and gate is not None:
        # Whom four eyes alone keep from it is told so, like the requester.
        is_named = await is_answerer(gate, run.identity, caller) or may_answer(
            gate.answerers.any_of, run.identity, caller, not_requester=False
        )
        if may_do_all or is_named:
            return run.identity
    try:
        with translating_peer_errors():
            wanted = gates_pb2.GetGateRequest(run_id=run_id, gate_id=wait_id)
            response = await peers.memory.GetGate(wanted, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
    except NotFound:
        return caller
    stored = response.gate
    requester = Identity.from_stored(caller.tenant, stored.requester)
    if gate is None:
        return caller if requester == caller else requester
    rule = stored.answerers
    if stored.state == OPEN and may_answer(rule.any_of, requester, caller, not_requester=rule.not_requester):
        raise Overloaded(f"another process has the run of gate {wait_id!r} by now; try again")
    return caller


async def too_late(peers: Peers, request: agent_pb2.SubmitRequest, by: str) -> agent_pb2.SubmitResponse:
    """Return what an answer of the user `by` is to a run that has ended.

    Raises:
        NotFound: There is no such run. Overloaded: It goes on.
    """
    wait_id = check(request)
    status = "unmatched"
    chat = await stored_runs.get_chat(peers, memory_pb2.GetChatRequest(run_id=request.run_id))
    for event in chat.events:
        match event.WhichOneof("payload"):
            case "request_submit" if event.request_submit.tool_id == wait_id:
                submit = event.request_submit
                is_same = submit.request_id == request.request_id and submit.by in ("", by)
                grant_id = _find_grant(chat.events, wait_id) if is_same else None
                return response(request.run_id, wait_id, "accepted" if is_same else "duplicate", grant_id=grant_id)
            case "gate_step" if event.gate_step.gate_id == wait_id:
                step = event.gate_step
                if (step.step, step.by, step.request_id) == (VOTE, by, request.request_id):
                    return response(request.run_id, wait_id, "voted", 0)
            case "tool_snapshot" if event.tool_snapshot.tool_id == wait_id and wait_id.startswith(ids.FRONTEND):
                status = "expired"
            case "gate_open" if event.gate_open.gate_id == wait_id and wait_id.startswith((ids.CREDENTIAL, ids.INPUT)):
                status = "expired"
            case "approval_ask" if event.approval_ask.approval_id == wait_id:
                status = "expired"
            case _:
                pass
    if not stored_runs.has_ended(chat):
        await stored_runs.check_not_unfinished(peers, request.run_id)
    return response(request.run_id, wait_id, status)


def _find_grant(events: Iterable[agent_pb2.AgentDelta], gate_id: str) -> str | None:
    """Return the id of the grant that the gate's answer has made; None where it has made none."""
    made = (event.grant_make for event in events if event.HasField("grant_make"))
    return next((grant.grant_id for grant in made if grant.gate_id == gate_id), None)


def response(
    run_id: str, wait_id: str, status: str, missing: int | None = None, grant_id: str | None = None
) -> agent_pb2.SubmitResponse:
    return agent_pb2.SubmitResponse(
        accepted=status in ("accepted", "voted"),
        status=status,
        run_id=run_id,
        tool_id=wait_id,
        detail=DETAILS[status],
        votes_missing=missing,
        grant_id=grant_id,
    )
