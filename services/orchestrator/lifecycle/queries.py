"""Queries before their runs begin: their copies, and the line that stores them. A run exists once it is committed."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import ChatBusy, HeadraceError
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.lifecycle.live_runs import OwnedElsewhere, RepeatedQuery, stopping
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.access import resolve_chat
from services.runtime.auth.identity import require_identity

if TYPE_CHECKING:
    from services.orchestrator.lifecycle.admission.admission import KeyLimits
    from services.orchestrator.lifecycle.leases import Owner
    from services.orchestrator.lifecycle.live_runs import LiveRuns
    from services.orchestrator.run.run import Run


STEER_FIELDS = frozenset({"chat_id", "agent_key", "deep_think", "trial"})

STEER_OWN_FIELDS = frozenset({"request_id", "role", "message"})

STEER_LEFT_OUT = frozenset(
    {"references", "params", "scene", "stream", "on_disconnect", "when_busy"}
    | {"client_tools", "output_format", "tool_choice", "parallel_tool_calls"}
    | {"history", "progress", "record", "agent_version", "from_program", "chat_key"}
)


def query_event(query: agent_pb2.QueryRequest, user: str) -> agent_pb2.RequestQuery:
    fields = agent_pb2.RequestQuery.DESCRIPTOR.fields_by_name
    copied = {field.name: value for field, value in query.ListFields() if field.name in fields}
    return agent_pb2.RequestQuery(**copied, by=user)


def steer_query(query: agent_pb2.QueryRequest, request_id: str, text: str) -> agent_pb2.QueryRequest:
    """Create the query that asks an unheard message; the same message always yields the same query."""
    name = hashlib.sha256(request_id.encode()).hexdigest()[:32]
    fields = {field.name: value for field, value in query.ListFields() if field.name in STEER_FIELDS}
    return agent_pb2.QueryRequest(request_id=f"steer_{name}", role="user", message=text, **fields)


def find_chat(query: agent_pb2.QueryRequest) -> agent_pb2.QueryRequest:
    """Return the query with its chat_key resolved to a chat id; unchanged without a key.

    Raises:
        InvalidRequest: The key belongs to another chat than chat_id.
    """
    if not query.HasField("chat_key"):
        return query
    copy = agent_pb2.QueryRequest()
    copy.CopyFrom(query)
    copy.chat_id = resolve_chat(require_identity(), query.chat_id, query.chat_key)
    return copy


Caller: TypeAlias = "asyncio.Future[RepeatedQuery | OwnedElsewhere | None]"
"""Receives None when the run is stored, else the reason or error why no run executes."""


class QueryLog:
    def __init__(self, peers: Peers, owner: Owner, live: LiveRuns, key_limits: KeyLimits) -> None:
        self._peers = peers
        self._key_limits = key_limits
        self._owner = owner
        self._live = live

    async def store_again(self, run: Run) -> memory_pb2.AppendResponse | None:
        """Store the query of a resumed run again; return None on failure, which affects only later queries.

        The response is needed only for a later query that reverts this run, and by the work after the run.
        """
        try:
            stored = await self._peers.memory.Append(self._make_append(run, run.past.traceparent))
        except HeadraceError:
            return None
        run.chat.store(stored.checkpoint_id, stored.chat_owner)
        return stored

    def _make_append(self, run: Run, traceparent: str) -> memory_pb2.AppendRequest:
        line = memory_pb2.QueryLine(query=run.query, agent_hash=run.agent.hash, traceparent=traceparent)
        if run.version is not None:
            line.agent_version, line.agent_version_hash = run.version.number, run.version.hash
        return memory_pb2.AppendRequest(
            chat_id=run.chat_id,
            run_id=run.id,
            # The run's id, so that a repeated append is answered as it was at first.
            request_id=run.id,
            lines=[memory_pb2.LogLine(query=line)],
            owner=self._owner.address,
            ttl_ms=self._owner.ttl_ms,
            key_runs_max=self._key_limits.find_runs_max(),
            beside=[
                other.id
                for other in self._live.of_chat(run.chat_id)
                if not (other.log.is_lost or self._live.is_leaving(other.id))
            ],
        )

    async def store(self, run: Run, traceparent: str, caller: Caller) -> memory_pb2.AppendResponse | None:
        """Store the query, with the first turn's request if it is ready; return None if no run begins.

        The run keeps its first turn only if the chat has a state, so that the work must begin again.
        """
        try:
            if run.first_turn is not None:
                context = await run.first_turn.wait_for_request()
                request = memory_pb2.BeginRunRequest(append=self._make_append(run, traceparent), context=context)
                response = await self._peers.memory.BeginRun(request)
            else:
                stored = await self._peers.memory.Append(self._make_append(run, traceparent))
                response = memory_pb2.BeginRunResponse(append=stored)
        except ChatBusy as error:
            if not caller.done():
                caller.set_result(OwnedElsewhere(error.metadata["runId"]))
            return None
        except Exception as error:  # every error goes to the caller
            if not caller.done():
                caller.set_exception(error)
            return None
        except asyncio.CancelledError:
            if not caller.done():
                caller.set_exception(stopping())
            raise
        reply = response.append
        is_repeated = reply.HasField("duplicate_run_id")
        if not caller.done():
            caller.set_result(RepeatedQuery(reply.duplicate_run_id) if is_repeated else None)
        if is_repeated:
            return None
        run.chat.store(reply.checkpoint_id, reply.chat_owner)
        run.state.store()
        if run.first_turn is not None and run.first_turn.take_answer(response):
            run.first_turn = None
        # A part of the response would keep all of it in memory, with the chat's messages.
        stored = memory_pb2.AppendResponse()
        stored.CopyFrom(reply)
        return stored
