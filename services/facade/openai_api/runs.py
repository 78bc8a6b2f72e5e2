"""The runs behind the answers: start, resume, follow, and cancel when the caller leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing, suppress
from typing import Any

import grpc

from headrace.errors import HeadraceError, InvalidRequest
from headrace.streams import reading, rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.facade.openai_api.event_mapper import map_events
from services.facade.openai_api.events import FunctionCall, RunEnded, RunEvent, RunStarted
from services.facade.openai_api.request import AgentRequest, ToolResult
from services.facade.openai_api.structured_output import TAKEN_BACK, keep_output
from services.runtime.rpc import call_ids

UNARY_TIMEOUT_S = 30.0

CANCEL_TIMEOUT_S = 2.0
"""Nobody waits for this answer: the caller has left."""


class Runs:
    """Runs is shared by all requests and holds no state of a run."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(channel)

    async def follow_run(self, request: AgentRequest) -> AsyncGenerator[RunEvent]:
        """Carry out the request and yield its events, from RunStarted to RunEnded.

        Closing it early cancels the run, which no other caller could find, unless it runs in the background. A run that
        waits for its caller's functions keeps waiting.
        """
        run_id, is_over = "", request.background
        try:
            source = self._resume_run(request.results) if request.results else self._start_run(request)
            if request.output_format is not None:
                source = keep_output(source, is_stream=request.stream)
            async with aclosing(source) as events:
                async for event in events:
                    if isinstance(event, RunStarted):
                        run_id = event.run_id
                    # An answer that a stream cannot take back ends the stream, and not the run.
                    is_end = isinstance(event, RunEnded) and event.failure is not TAKEN_BACK
                    is_over = is_over or is_end or isinstance(event, FunctionCall)
                    yield event
        finally:
            if run_id and not is_over:
                with suppress(HeadraceError, grpc.aio.AioRpcError):  # it has ended, or its service is away
                    await self.cancel_run(run_id, timeout_s=CANCEL_TIMEOUT_S)

    async def attach_run(self, run_id: str) -> AsyncGenerator[RunEvent]:
        """Yield a live run's events from its beginning; NotFound if there is none. Closing it leaves the run alone."""
        call = self._agents.Attach(agent_pb2.AttachRequest(run_id=run_id), metadata=call_ids.forward_metadata())
        async with reading(call) as deltas, aclosing(map_events(deltas, frozenset())) as events:
            async for event in events:
                yield event

    async def get_run(self, run_id: str) -> agent_pb2.Run:
        request = agent_pb2.GetRunRequest(run_id=run_id)
        with rpc_errors():
            reply = await self._agents.GetRun(request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        return reply.run

    async def cancel_run(self, run_id: str, *, timeout_s: float = UNARY_TIMEOUT_S) -> None:
        request = agent_pb2.CancelRequest(run_id=run_id)
        with rpc_errors():
            await self._agents.Cancel(request, timeout=timeout_s, metadata=call_ids.forward_metadata())

    async def list_agents(self) -> Sequence[agent_pb2.Agent]:
        request = agent_pb2.ListAgentsRequest()
        with rpc_errors():
            reply = await self._agents.ListAgents(
                request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata()
            )
        return reply.agents

    async def get_agent(self, key: str) -> agent_pb2.Agent:
        request = agent_pb2.GetAgentRequest(agent_key=key)
        with rpc_errors():
            reply = await self._agents.GetAgent(request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        return reply.agent

    async def _start_run(self, request: AgentRequest) -> AsyncGenerator[RunEvent]:
        query = agent_pb2.QueryRequest(
            message=request.conversation.message,
            history=[earlier.to_proto() for earlier in request.conversation.history],
            progress=[earlier.to_proto() for earlier in request.conversation.progress],
            references=request.references,
            agent_key=request.model or None,
            chat_id=request.chat_id or None,
            client_tools=request.tools,
            tool_choice=request.tool_choice or None,
            parallel_tool_calls=request.parallel_tool_calls,
            output_format=request.output_format,
            # A run that waits for its caller's functions outlives each of the requests that it is request by.
            on_disconnect="continue" if request.background or request.tools else "cancel",
            when_busy="reject",
        )
        call = self._agents.Query(query, metadata=call_ids.forward_metadata())
        try:
            async with reading(call) as deltas, aclosing(map_events(deltas, frozenset())) as events:
                async for event in events:
                    yield event
        except InvalidRequest as error:
            raise request.conversation.rename_field(error) from error

    async def _resume_run(self, results: Sequence[ToolResult]) -> AsyncGenerator[RunEvent]:
        """Give the run its results, and yield the later events. A repeated or late result changes nothing."""
        run_id = results[0].call.run_id
        run = await self.get_run(run_id)
        last_seq = min(result.call.last_seq for result in results)
        for result in results:
            request = agent_pb2.SubmitRequest(run_id=run_id, tool_id=result.call.tool_id, payload=result.payload)
            with rpc_errors():
                await self._agents.Submit(request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata())
        # Not before: until it has its results the run waits for them, whatever becomes of this request.
        yield RunStarted(last_seq, run_id, run.chat_id, run.agent_key, run.created_at // 1000)
        answered = frozenset(result.call.tool_id for result in results)
        request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
        call = self._agents.Attach(request, metadata=call_ids.forward_metadata())
        async with reading(call) as deltas, aclosing(map_events(deltas, answered)) as events:
            async for event in events:
                yield event
