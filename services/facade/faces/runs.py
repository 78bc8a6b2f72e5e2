"""The RPCs behind the faces: the agents that a face shows, and their runs, to start, attach, answer and cancel."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

import grpc

from headrace.errors import HeadraceError, Interrupted, NotFound, Overloaded
from headrace.run_states import LIVE_STATES
from headrace.streams import reading
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.facade.faces.gate_answers import Answer
from services.facade.faces.run_pipe import RunReader, RunTaker, UntilOver, pipe_run
from services.facade.peer_calls import UNARY_TIMEOUT_S, call_peer
from services.runtime.rpc import call_ids
from services.runtime.rpc.push_stream import Watches

LOOK_TIMEOUT_S = 2.0
"""Longest read of a run that has not ended, for its state as it stands."""

RUNS_PAGE = 200
"""As many as ListRuns gives at once; it begins with the oldest."""

VOTED = "voted"
"""Status of an approval that was counted, and is not the last one."""

CANCEL_TIMEOUT_S = 2.0
"""Nobody waits for this answer: the caller has left."""


def make_unread_error(run_id: str) -> Overloaded:
    """Return the error of a run that has ended, and whose events take too long."""
    return Overloaded("the run's events could not be read in time; try again", runId=run_id)


class FaceRuns:
    """Shared by all requests; holds no state of a run."""

    def __init__(self, orchestrator: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        path = f"/{agent_pb2.DESCRIPTOR.services_by_name['AgentService'].full_name}/"
        self._query: Any = orchestrator.unary_stream(f"{path}Query", agent_pb2.QueryRequest.SerializeToString)
        self._attach: Any = orchestrator.unary_stream(f"{path}Attach", agent_pb2.AttachRequest.SerializeToString)

    def start_run(self, query: agent_pb2.QueryRequest) -> Any:
        """Return the call, whose messages are AgentDeltas as bytes."""
        return self._query(query, metadata=call_ids.forward_metadata())

    def attach_run(self, run_id: str, last_seq: int = 0) -> Any:
        """Return the call, whose messages are AgentDeltas as bytes."""
        request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
        return self._attach(request, metadata=call_ids.forward_metadata())

    async def get_run(self, run_id: str, agent_keys: Collection[str] | None = None) -> agent_pb2.Run:
        """Return a run of one of the agents, or of any; that of another one is not found."""
        request = agent_pb2.GetRunRequest(run_id=run_id)
        reply = await call_peer(self._agents.GetRun, request)
        if agent_keys is not None and reply.run.agent_key not in agent_keys:
            raise NotFound(f"no run {run_id} of an agent that is published here", field="runId")
        return reply.run

    async def look(self, run: agent_pb2.Run, reader: RunReader, taker: RunTaker) -> None:
        """Have `reader` read a run that has ended, or else `taker` what there is of one that has not.

        Raises:
            Overloaded: The events of a run that has ended take too long.
        """
        if run.state in LIVE_STATES:
            with suppress(TimeoutError, Interrupted):
                async with asyncio.timeout(LOOK_TIMEOUT_S):
                    await pipe_run(self.attach_run(run.run_id), taker)
            return
        try:
            async with asyncio.timeout(UNARY_TIMEOUT_S):
                await pipe_run(self.attach_run(run.run_id), UntilOver(reader))
        except TimeoutError:
            raise make_unread_error(run.run_id) from None

    async def list_runs(self, chat_id: str) -> list[agent_pb2.Run]:
        """Return a chat's runs, the newest first; none of a chat that is not there, or not the caller's."""
        runs: list[agent_pb2.Run] = []
        request = agent_pb2.ListRunsRequest(chat_id=chat_id, page_size=RUNS_PAGE)
        with suppress(NotFound):
            while True:
                reply = await call_peer(self._agents.ListRuns, request)
                runs += reply.runs
                if not reply.next_page_token:
                    return runs[::-1]
                request.page_token = reply.next_page_token
        return []

    async def answer_run(self, answers: Sequence[Answer]) -> frozenset[str]:
        """Give a run its answers; one that comes twice or too late changes nothing. Return the gates that are answered,
        without those that want further approvals."""
        answered: set[str] = set()
        for answer in answers:
            submit = agent_pb2.SubmitRequest(run_id=answer.run_id, payload=answer.payload)
            if answer.is_approval:
                submit.approval_id = answer.gate_id
            else:
                submit.tool_id = answer.gate_id
            reply = await call_peer(self._agents.Submit, submit)
            if reply.status != VOTED:
                answered.add(answer.gate_id)
        return frozenset(answered)

    async def cancel_run(self, run_id: str) -> None:
        await call_peer(self._agents.Cancel, agent_pb2.CancelRequest(run_id=run_id))

    async def abandon_run(self, run_id: str) -> None:
        """Cancel a run whose caller has left; it may have ended, or its service be away."""
        request = agent_pb2.CancelRequest(run_id=run_id)
        with suppress(HeadraceError, grpc.aio.AioRpcError):
            await call_peer(self._agents.Cancel, request, CANCEL_TIMEOUT_S)


class PublishedAgents:
    def __init__(self, orchestrator: grpc.aio.Channel, face: str, published_faces: frozenset[str]) -> None:
        """`published_faces` are those that show all agents, whatever their files say."""
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        self._face = face
        self._shows_all = face in published_faces

    async def list_agents(self) -> Sequence[agent_pb2.Agent]:
        reply = await call_peer(self._agents.ListAgents, agent_pb2.ListAgentsRequest())
        return [agent for agent in reply.agents if self._shows_all or self._face in agent.publish]

    async def get_agent(self, key: str) -> agent_pb2.Agent:
        """Return an agent; one that is not published is not found, in the words of one that is not there."""
        found = next((agent for agent in await self.list_agents() if agent.key == key), None)
        if found is None:
            raise NotFound(f"no agent {key[:128]!r} is published here", field="agentKey")
        return found


class FollowedChats:
    def __init__(self, orchestrator: grpc.aio.Channel, runs: FaceRuns, watches: Watches) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        self._runs = runs
        self._watches = watches

    async def follow(
        self,
        chat_id: str,
        cursor: str,
        agent_keys: Collection[str] | None,
        take: Callable[[agent_pb2.FollowDelta], Awaitable[bool]],
    ) -> None:
        """Pass on what runs of these agents, or of all, do after `cursor`, and what is between runs.

        It ends when `take` returns False or the facade stops. Raises what AgentService.Follow does.
        """
        request = agent_pb2.FollowRequest(chat_id=chat_id, cursor=cursor)
        run_id, is_shown = "", True
        async with (
            self._watches.following(),
            reading(self._agents.Follow(request, metadata=call_ids.forward_metadata())) as deltas,
        ):
            async for delta in deltas:
                if delta.run_id != run_id:
                    run_id, is_shown = delta.run_id, await self._is_shown(delta.run_id, agent_keys)
                if is_shown and not await take(delta):
                    return

    async def _is_shown(self, run_id: str, agent_keys: Collection[str] | None) -> bool:
        if not run_id or agent_keys is None:
            return True
        try:
            await self._runs.get_run(run_id, [*agent_keys])
        except NotFound:
            return False
        return True
