"""The runs of OpenAI requests: start, resume, follow, and cancel when the caller leaves."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

import grpc

from headrace.errors import InvalidRequest
from headrace.streams import reading
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.facade.adapters.gate_answers import Answer
from services.facade.adapters.runs import AdapterRuns
from services.facade.openai_api.event_mapper import map_events
from services.facade.openai_api.events import FunctionCall, RunEnded, RunEvent, RunStarted
from services.facade.openai_api.request import AgentRequest, ToolResult
from services.facade.openai_api.structured_output import TAKEN_BACK, keep_output
from services.facade.peer_calls import call_peer
from services.runtime.rpc import call_ids


@dataclass(frozen=True, slots=True)
class _OpenedRun:
    call: Any
    answered: frozenset[str] = frozenset()
    """Ids of the calls that this request answers."""

    started: RunStarted | None = None
    """The event to begin with; None if the stream of `call` has it."""


class Runs:
    """Shared by all requests; holds no state of a run."""

    def __init__(self, channel: grpc.aio.Channel, runs: AdapterRuns) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(channel)
        self._runs = runs

    async def follow_run(self, request: AgentRequest) -> AsyncGenerator[RunEvent]:
        """Execute the request and yield its events, from RunStarted to RunEnded.

        Closing the generator early cancels the run, because no other caller could find it; a background run
        continues, and a run that waits for its caller's functions keeps waiting.
        """
        run_id, is_over = "", request.background
        try:
            opened = await self._resume_run(request.results) if request.results else self._start_run(request)
            if opened.started is not None:
                run_id = opened.started.run_id
                yield opened.started
            async with (
                reading(opened.call) as deltas,
                aclosing(map_events(deltas, opened.answered)) as mapped,
                aclosing(keep_output(mapped, is_stream=request.stream) if request.output_format else mapped) as events,
            ):
                async for event in events:
                    if isinstance(event, RunStarted):
                        run_id = event.run_id
                    # If a streamed answer had to be retracted, only the stream ends here; the run is still
                    # alive.
                    is_end = isinstance(event, RunEnded) and event.failure is not TAKEN_BACK
                    is_over = is_over or is_end or isinstance(event, FunctionCall)
                    yield event
        except InvalidRequest as error:
            if request.results:
                raise
            raise request.conversation.rename_field(error, request.tools) from error
        finally:
            if run_id and not is_over:
                await self._runs.abandon_run(run_id)

    async def attach_run(self, run_id: str) -> AsyncGenerator[RunEvent]:
        """Yield a live run's events from its beginning; NotFound if there is none. Closing the generator does
        not cancel it.
        """
        call = self._agents.Attach(agent_pb2.AttachRequest(run_id=run_id), metadata=call_ids.forward_metadata())
        async with reading(call) as deltas, aclosing(map_events(deltas, frozenset())) as events:
            async for event in events:
                yield event

    async def list_agents(self) -> Sequence[agent_pb2.Agent]:
        return (await call_peer(self._agents.ListAgents, agent_pb2.ListAgentsRequest())).agents

    async def get_agent(self, key: str) -> agent_pb2.Agent:
        return (await call_peer(self._agents.GetAgent, agent_pb2.GetAgentRequest(agent_key=key))).agent

    def _start_run(self, request: AgentRequest) -> _OpenedRun:
        query = agent_pb2.QueryRequest(
            message=request.conversation.message,
            history=[earlier.to_proto() for earlier in request.conversation.history],
            progress=[earlier.to_proto() for earlier in request.conversation.progress],
            references=request.references,
            agent_key=request.model or None,
            chat_id=request.chat_id or None,
            client_tools=request.tools.values(),
            tool_choice=request.tool_choice or None,
            parallel_tool_calls=request.parallel_tool_calls,
            output_format=request.output_format,
            # A run that waits for its caller's functions spans several requests, so it must outlive each of
            # them.
            on_disconnect="continue" if request.background or request.tools else "cancel",
            when_busy="reject",
        )
        return _OpenedRun(self._agents.Query(query, metadata=call_ids.forward_metadata()))

    async def _resume_run(self, results: Sequence[ToolResult]) -> _OpenedRun:
        """Submit the results and open the run's later events; a repeated or late result changes nothing."""
        run_id = results[0].call.run_id
        run = await self._runs.get_run(run_id)
        last_seq = min(result.call.last_seq for result in results)
        await self._runs.answer_run([Answer(run_id, one.call.tool_id, False, one.payload) for one in results])
        # Known only now: before it has its results, the run must keep waiting even if this request is closed.
        started = RunStarted(last_seq, run_id, run.chat_id, run.agent_key, run.created_at // 1000)
        request = agent_pb2.AttachRequest(run_id=run_id, last_seq=last_seq)
        call = self._agents.Attach(request, metadata=call_ids.forward_metadata())
        return _OpenedRun(call, frozenset(result.call.tool_id for result in results), started)
