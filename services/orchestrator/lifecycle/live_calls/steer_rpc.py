"""Steer: a message reaches an active run, or becomes the chat's next query.

Unheard messages are asked before the run's end is stored, so no restart loses them.
"""

from __future__ import annotations

import asyncio

from headrace.errors import Overloaded, PermissionDenied
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.people import live_input
from services.orchestrator.run.control.state import Steer
from services.orchestrator.run.run import Run
from services.runtime.auth.identity import require_identity


async def steer(run: Run, request_id: str, text: str, tasks: asyncio.TaskGroup) -> agent_pb2.SteerResponse:
    """Return when the message is committed; it is committed even if the caller disconnects.

    Raises:
        QueueFull: Too many messages wait for the next turn.
        Overloaded: The run is moving to another owner.
    """
    taken = run.steering.find(request_id)
    if taken is None:
        if run.control.is_given_up:
            raise Overloaded("the run is being moved to another process; try again")
        taken = Steer(request_id, text)
        run.steering.add(taken)
        event = agent_pb2.RequestSteer(
            request_id=request_id, chat_id=run.chat_id, run_id=run.id, message=text, by=run.identity.user
        )
        taken.committed = live_input.publish(run, event, tasks, lambda: None)
    if taken.committed is not None:
        await asyncio.shield(taken.committed)
    return make_accepted(run.id)


def make_foreign_error(run_id: str) -> PermissionDenied:
    return PermissionDenied(f"run {run_id} is another user's, who alone may steer it", runId=run_id)


def make_accepted(run_id: str) -> agent_pb2.SteerResponse:
    return agent_pb2.SteerResponse(run_id=run_id, status="accepted")


async def query_of(peers: Peers, request: agent_pb2.SteerRequest) -> agent_pb2.QueryRequest | None:
    """Return an ended run's query, or None if the run already accepted this message.

    Raises:
        NotFound: The user has no such run.
        PermissionDenied: The run is active, and belongs to another user.
    """
    chat = await stored_runs.get_chat(peers, memory_pb2.GetChatRequest(run_id=request.run_id))
    events = chat.events
    if any(event.request_steer.request_id == request.request_id for event in events if event.HasField("request_steer")):
        return None
    asked = next((event.request_query for event in events if event.HasField("request_query")), None)
    if asked is None:
        raise stored_runs.make_run_reverted(request.run_id)
    if asked.by != require_identity().user and not stored_runs.has_ended(chat):
        raise make_foreign_error(request.run_id)
    return agent_pb2.QueryRequest(chat_id=asked.chat_id, agent_key=asked.agent_key)
