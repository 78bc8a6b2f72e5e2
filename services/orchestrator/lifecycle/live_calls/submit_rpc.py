"""Submit: a person's decision reaches the log, then the run that waits for it."""

from __future__ import annotations

import asyncio
from functools import partial

from headrace.errors import InvalidRequest, NotFound, PermissionDenied
from headrace.v1 import agent_pb2, gates_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.calls import ask_person
from services.orchestrator.calls.frontend import find_answerers
from services.orchestrator.lifecycle.live_calls import live_input
from services.orchestrator.lifecycle.live_runs import LiveRuns
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import UNARY_TIMEOUT_S, Peers, translating_peer_errors
from services.orchestrator.run.control.waits import Submission
from services.orchestrator.run.run import Run
from services.runtime.auth import identity
from services.runtime.auth.answerers import REQUESTER, may_answer
from services.runtime.auth.identity import Identity, acting_as
from services.runtime.randomness import new_uuid
from services.runtime.rpc.call_ids import forward_metadata

DETAILS = {
    "accepted": "the run goes on with it",
    "duplicate": "another submit came first",
    "expired": "the run waits no more",
    "unmatched": "the run does not wait for this id",
}


def check(request: agent_pb2.SubmitRequest) -> str:
    """Return the id that the submit is for. Raises InvalidRequest."""
    if bool(request.tool_id) == bool(request.approval_id):
        raise InvalidRequest.of("toolId", "either toolId or approvalId must be set")
    if request.approval_id:
        ask_person.parse_answer(request.payload)
    return request.tool_id or request.approval_id


async def submit(run: Run, request: agent_pb2.SubmitRequest, tasks: asyncio.TaskGroup) -> agent_pb2.SubmitResponse:
    """Return `accepted` once the submit is committed.

    Raises:
        InvalidRequest: The payload is invalid.
        PermissionDenied: The caller may not answer this gate.
        QueueFull: Too many came before their waits.
    """
    wait_id = check(request)
    if request.chat_id and request.chat_id != run.chat_id:
        raise InvalidRequest.of("chatId", "is not the chat of this run")
    caller, gate = identity.require_identity(), run.waits.find_gate(wait_id)
    if gate is not None:
        check_answerer(gate, run.identity, caller)
    elif _has_rule(run, wait_id):
        return response(run.id, wait_id, "unmatched")
    if not run.is_waited_for(wait_id) or run.feed.ended:
        return response(run.id, wait_id, "unmatched")
    claim = run.waits.claim(wait_id, request.request_id)
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
            run.waits.note_commit(wait_id, live_input.publish(run, event, tasks, fulfil))
    if claim in ("accepted", "repeated"):
        await run.waits.wait_for_commit(wait_id)
    return response(run.id, wait_id, "accepted" if claim == "repeated" else claim)


def _has_rule(run: Run, wait_id: str) -> bool:
    """Say whether an answer that comes before its gate is open cannot be taken, since a rule says who may answer."""
    call = run.scopes.find_waiting_call(wait_id)
    return call is not None and find_answerers(call) is not None


def check_answerer(gate: agent_pb2.GateOpen | gates_pb2.Gate, requester: Identity, caller: Identity) -> None:
    """Raises PermissionDenied."""
    rule = gate.answerers
    if "answer" not in caller.scopes:
        raise PermissionDenied("this credential has no scope 'answer'", scope="answer", gateId=gate.gate_id)
    if may_answer(rule.any_of, requester.user, caller, not_requester=rule.not_requester):
        return
    if rule.not_requester and caller == requester:
        why = "four eyes: whoever asked may not answer, and without authentication everybody is the same user"
    else:
        why = f"it is for {', '.join(rule.any_of) or REQUESTER}"
    raise PermissionDenied(f"you may not answer this gate: {why}", gateId=gate.gate_id)


async def find_requester(live: LiveRuns, peers: Peers, run_id: str, wait_id: str) -> Identity:
    """Return whose run it is where the caller may see its gate; the caller's own identity otherwise."""
    caller = identity.require_identity()
    run = live.find_of_tenant(run_id)
    if run is not None:
        if run.identity == caller or (gate := run.waits.find_gate(wait_id)) is None:
            return caller
        rule = gate.answerers
        may = may_answer(rule.any_of, run.identity.user, caller, not_requester=rule.not_requester)
        return run.identity if may or "operate" in caller.scopes else caller
    try:
        with translating_peer_errors():
            wanted = gates_pb2.GetGateRequest(run_id=run_id, gate_id=wait_id)
            response = await peers.memory.GetGate(wanted, timeout=UNARY_TIMEOUT_S, metadata=forward_metadata())
    except NotFound:
        return caller
    requester = Identity.from_stored(caller.tenant, response.gate.requester)
    return caller if requester == caller else requester


async def too_late(peers: Peers, request: agent_pb2.SubmitRequest) -> agent_pb2.SubmitResponse:
    """Raises NotFound."""
    wait_id = check(request)
    status = "unmatched"
    chat = await stored_runs.get_chat(peers, memory_pb2.GetChatRequest(run_id=request.run_id))
    for event in chat.events:
        match event.WhichOneof("payload"):
            case "request_submit" if event.request_submit.tool_id == wait_id:
                is_same = event.request_submit.request_id == request.request_id
                return response(request.run_id, wait_id, "accepted" if is_same else "duplicate")
            case "tool_snapshot" if event.tool_snapshot.tool_id == wait_id and wait_id.startswith(ids.FRONTEND):
                status = "expired"
            case "approval_ask" if event.approval_ask.approval_id == wait_id:
                status = "expired"
            case _:
                pass
    return response(request.run_id, wait_id, status)


def response(run_id: str, wait_id: str, status: str) -> agent_pb2.SubmitResponse:
    return agent_pb2.SubmitResponse(
        accepted=status == "accepted", status=status, run_id=run_id, tool_id=wait_id, detail=DETAILS[status]
    )
