"""Submit: a person's decision reaches the log, then the run that waits for it."""

from __future__ import annotations

import asyncio
from functools import partial

from headrace.errors import InvalidRequest
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator import ids
from services.orchestrator.calls import ask_person
from services.orchestrator.lifecycle.live_calls import live_input
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.run.control.waits import Submission
from services.orchestrator.run.run import Run
from services.runtime.auth import identity
from services.runtime.randomness import new_uuid

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
        QueueFull: Too many came before their waits.
    """
    wait_id = check(request)
    if request.chat_id and request.chat_id != run.chat_id:
        raise InvalidRequest.of("chatId", "is not the chat of this run")
    if not run.is_waited_for(wait_id) or run.feed.ended:
        return response(run.id, wait_id, "unmatched")
    claim = run.waits.claim(wait_id, request.request_id)
    if claim == "accepted":
        caller = identity.require_identity()
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
        run.waits.note_commit(wait_id, live_input.publish(run, event, tasks, fulfil))
    if claim in ("accepted", "repeated"):
        await run.waits.wait_for_commit(wait_id)
    return response(run.id, wait_id, "accepted" if claim == "repeated" else claim)


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
