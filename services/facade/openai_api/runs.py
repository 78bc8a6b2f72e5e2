"""The runs behind the answers: started or gone on with, followed, and cancelled when their caller leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import grpc

from headrace.errors import HeadraceError
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.facade.openai_api.event_mapper import told
from services.facade.openai_api.events import Called, Ended, Started, Told
from services.facade.openai_api.request import Asked, Result
from services.runtime.rpc import call_ids

UNARY_TIMEOUT_S = 30.0
CANCEL_TIMEOUT_S = 2.0
"""For the cancel of a run whose caller has left: nobody waits for the answer."""


class Runs:
    """Made once for a facade; holds nothing of any run."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(channel)

    async def follow(self, asked: Asked) -> AsyncGenerator[Told]:
        """Do what is asked and tell of it, first Started, last Ended.

        Closing it before the end cancels the run, unless it is to go on in the background: no other caller could find
        it. What waits for its caller's functions goes on waiting.
        """
        run_id, is_over = "", asked.background
        try:
            events = self._gone_on(asked.results) if asked.results else self._started(asked)
            async with aclosing(events) as things:
                async for thing in things:
                    if isinstance(thing, Started):
                        run_id = thing.run_id
                    is_over = is_over or isinstance(thing, (Called, Ended))
                    yield thing
        finally:
            if run_id and not is_over:
                with suppress(HeadraceError, grpc.aio.AioRpcError):  # it has ended, or its service is away
                    await self.cancel(run_id, timeout_s=CANCEL_TIMEOUT_S)

    async def attach(self, run_id: str) -> AsyncGenerator[Told]:
        """Tell of a run from its beginning, while it lives, without touching it. Raises NotFound."""
        call = self._agents.Attach(agent_pb2.AttachRequest(run_id=run_id), metadata=call_ids.forward_metadata())
        async with reading(call) as deltas, aclosing(told(deltas, frozenset())) as things:
            async for thing in things:
                yield thing

    async def get(self, run_id: str) -> agent_pb2.Run:
        """The run as it stands. Raises NotFound."""
        request = agent_pb2.GetRunRequest(run_id=run_id)
        with rpc_errors():
            reply = await self._agents.GetRun(request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        return reply.run

    async def cancel(self, run_id: str, *, timeout_s: float = UNARY_TIMEOUT_S) -> None:
        """Stop a run. Raises NotFound."""
        request = agent_pb2.CancelRequest(run_id=run_id)
        with rpc_errors():
            await self._agents.Cancel(request, timeout=timeout_s, metadata=call_ids.forward_metadata())

    async def agents(self) -> Sequence[agent_pb2.Agent]:
        """The agents in force."""
        request = agent_pb2.ListAgentsRequest()
        with rpc_errors():
            reply = await self._agents.ListAgents(
                request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata()
            )
        return reply.agents

    async def agent(self, key: str) -> agent_pb2.Agent:
        """One agent. Raises NotFound."""
        request = agent_pb2.GetAgentRequest(agent_key=key)
        with rpc_errors():
            reply = await self._agents.GetAgent(request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        return reply.agent

    async def _started(self, asked: Asked) -> AsyncGenerator[Told]:
        query = agent_pb2.QueryRequest(
            message=asked.message,
            agent_key=asked.model or None,
            chat_id=asked.chat_id or None,
            client_tools=asked.tools,
            # A run that waits for its caller's functions outlives each of the requests that it is asked by.
            on_disconnect="continue" if asked.background or asked.tools else "cancel",
            when_busy="reject",
        )
        call = self._agents.Query(query, metadata=call_ids.forward_metadata())
        async with reading(call) as deltas, aclosing(told(deltas, frozenset())) as things:
            async for thing in things:
                yield thing

    async def _gone_on(self, results: Sequence[Result]) -> AsyncGenerator[Told]:
        """Give the run its results, and tell what it does behind the last event that the caller has had.

        A result that comes again, or too late, changes nothing: the caller is told what the run did without it.
        """
        run_id = results[0].call.run_id
        run = await self.get(run_id)
        last_seq = min(result.call.last_seq for result in results)
        yield Started(last_seq, run_id, run.chat_id, run.agent_key, run.created_at // 1000)
        for result in results:
            request = agent_pb2.SubmitRequest(run_id=run_id, tool_id=result.call.tool_id, payload=result.payload)
            with rpc_errors():
                await self._agents.Submit(request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        answered = frozenset(result.call.tool_id for result in results)
        request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
        call = self._agents.Attach(request, metadata=call_ids.forward_metadata())
        async with reading(call) as deltas, aclosing(told(deltas, answered)) as things:
            async for thing in things:
                yield thing
