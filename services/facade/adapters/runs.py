"""The RPCs used by all protocol adapters: list published agents; start, attach to, answer and cancel runs."""

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
from services.facade.adapters.gate_answers import Answer
from services.facade.adapters.run_pipe import RunReader, RunTaker, UntilOver, pipe_run
from services.facade.peer_calls import UNARY_TIMEOUT_S, call_peer
from services.runtime.rpc import call_ids
from services.runtime.rpc.push_stream import Watches

LOOK_TIMEOUT_S = 2.0
"""Maximum time to read a live run's events for its current state."""

RUNS_PAGE = 200
"""Page size of ListRuns, which returns the oldest runs first."""

VOTED = "voted"
"""Status of an approval that was counted but needs further votes."""

CANCEL_TIMEOUT_S = 2.0
"""Short because no caller waits: it has left."""


def make_unread_error(run_id: str) -> Overloaded:
    """Return the error for an ended run, if reading its events takes too long."""
    return Overloaded("the run's events could not be read in time; try again", runId=run_id)


class AdapterRuns:
    """Shared by all requests; holds no state of a run."""

    def __init__(self, orchestrator: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        path = f"/{agent_pb2.DESCRIPTOR.services_by_name['AgentService'].full_name}/"
        self._query: Any = orchestrator.unary_stream(f"{path}Query", agent_pb2.QueryRequest.SerializeToString)
        self._attach: Any = orchestrator.unary_stream(f"{path}Attach", agent_pb2.AttachRequest.SerializeToString)

    def start_run(self, query: agent_pb2.QueryRequest) -> Any:
        """Start a run and return the call, which streams AgentDeltas as bytes."""
        return self._query(query, metadata=call_ids.forward_metadata())

    def attach_run(self, run_id: str, last_seq: int = 0) -> Any:
        """Attach to a run and return the call, which streams AgentDeltas as bytes."""
        request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
        return self._attach(request, metadata=call_ids.forward_metadata())

    async def get_run(self, run_id: str, agent_keys: Collection[str] | None = None) -> agent_pb2.Run:
        """Return a run of one of the agents, or of any agent if `agent_keys` is None; NotFound for other
        agents' runs.
        """
        request = agent_pb2.GetRunRequest(run_id=run_id)
        reply = await call_peer(self._agents.GetRun, request)
        if agent_keys is not None and reply.run.agent_key not in agent_keys:
            raise NotFound(f"no run {run_id} of an agent that is published here", field="runId")
        return reply.run

    async def look(self, run: agent_pb2.Run, reader: RunReader, taker: RunTaker) -> None:
        """Read an ended run into `reader`, or the events so far of a live run into `taker`.

        Raises:
            Overloaded: Reading the events of an ended run takes too long.
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
        """Return a chat's runs, newest first; empty if there is no such chat or it is not the caller's."""
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
        """Submit the answers to a run and return the ids of the gates that are answered.

        A repeated or late answer changes nothing. A gate that needs further approvals is not returned.
        """
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
        """Cancel a run after its caller has left; ignore errors, for example if the run has ended."""
        request = agent_pb2.CancelRequest(run_id=run_id)
        with suppress(HeadraceError, grpc.aio.AioRpcError):
            await call_peer(self._agents.Cancel, request, CANCEL_TIMEOUT_S)


class PublishedAgents:
    def __init__(self, orchestrator: grpc.aio.Channel, adapter: str, publishing_adapters: frozenset[str]) -> None:
        """`publishing_adapters` are the protocols that publish all agents, regardless of their files."""
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        self._adapter = adapter
        self._shows_all = adapter in publishing_adapters

    async def list_agents(self) -> Sequence[agent_pb2.Agent]:
        reply = await call_peer(self._agents.ListAgents, agent_pb2.ListAgentsRequest())
        return [agent for agent in reply.agents if self._shows_all or self._adapter in agent.publish]

    async def get_agent(self, key: str) -> agent_pb2.Agent:
        """Return a published agent; an unpublished agent and a missing one cause the same NotFound, and one whose file
        was refused the orchestrator's."""
        found = next((agent for agent in await self.list_agents() if agent.key == key), None)
        if found is not None:
            return found
        try:
            await call_peer(self._agents.GetAgent, agent_pb2.GetAgentRequest(agent_key=key))
        except HeadraceError as error:
            published = error.metadata.get("publish", self._adapter).split(",")
            if "file" in error.metadata and (self._shows_all or self._adapter in published):
                raise
        raise NotFound(f"no agent {key[:128]!r} is published here", field="agentKey")


class FollowedChats:
    def __init__(self, orchestrator: grpc.aio.Channel, runs: AdapterRuns, watches: Watches) -> None:
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
        """Pass events of these agents' runs, or of all runs, after `cursor` to `take`, including events between runs.

        Ends when `take` returns False or the facade stops. Raises the errors of AgentService.Follow.
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
