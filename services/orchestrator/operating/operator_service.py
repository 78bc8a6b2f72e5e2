"""OperatorService: memory's view of all runs of a tenant, and cancels on behalf of their users."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING

import structlog

from headrace.errors import HeadraceError, IndexIncomplete, InvalidRequest, NotFound
from headrace.run_states import STATES_BY_EVENT, State
from headrace.v1 import agent_pb2, limits_pb2, llm_pb2, memory_pb2, operator_pb2, operator_pb2_grpc
from services.orchestrator.lifecycle.leases import Owner
from services.orchestrator.money.limits import LimitsInForce
from services.orchestrator.peers import stored_runs
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.service import AgentService
from services.runtime.auth.audit_records import AuditRecords
from services.runtime.auth.identity import Identity, acting_as, require_identity
from services.runtime.clock import now_ms
from services.runtime.rpc.interceptors import Context

if TYPE_CHECKING:
    from google.protobuf.message import Message

log = structlog.get_logger()


_TEXTS_KEPT = frozenset(
    {
        *("agent_key", "kind", "state", "status", "stage", "stream", "decision", "risk", "role", "trigger", "code"),
        *("tool_name", "tool_type", "action_name", "finish_reason", "mime_type", "viewport_key"),
        *("answered_by", "credential", "any_of"),
    }
)
"""Fields whose texts are our own words, or come from the configuration or the directory. Other texts are removed, so a
new field counts as content."""


def strip_content(message: Message) -> None:
    """Clear the texts of `message` and its nested messages."""
    for field, value in message.ListFields():
        if field.type in (field.TYPE_STRING, field.TYPE_BYTES):
            if not (field.name.endswith("_id") or field.name in _TEXTS_KEPT):
                message.ClearField(field.name)
        elif field.message_type is not None:
            if field.message_type.GetOptions().map_entry:
                message.ClearField(field.name)
            else:
                for inner in list(value) if field.is_repeated else [value]:
                    strip_content(inner)


RUNS_MAX = 200
"""Maximum runs that a request may list or cancel."""

CANCELS_MAX = 8
"""Maximum concurrent cancels; each may have to find the run's owner first."""

CANCEL_TIMEOUT_S = 10.0
"""Timeout of one cancel. Replacing an owner that has just died takes longer; the caller is asked to retry."""

_LIVE = ("", "live", State.RUNNING, State.WAITING)


class OperatorService(operator_pb2_grpc.OperatorServiceServicer):
    def __init__(
        self, agents: AgentService, peers: Peers, owner: Owner, limits: LimitsInForce, audit: AuditRecords
    ) -> None:
        self._agents = agents
        self._peers = peers
        self._owner = owner
        self._limits = limits
        self._audit = audit

    async def ListRuns(
        self, request: operator_pb2.OperatorListRunsRequest, context: Context
    ) -> operator_pb2.OperatorListRunsResponse:
        return await self._list_runs(request)

    async def GetRun(
        self, request: operator_pb2.OperatorGetRunRequest, context: Context
    ) -> operator_pb2.OperatorGetRunResponse:
        operator = require_identity()
        found = await self._list_runs(operator_pb2.OperatorListRunsRequest(run_ids=[request.run_id]))
        if not found.runs:
            raise NotFound(f"run {request.run_id} does not exist", runId=request.run_id)
        response = operator_pb2.OperatorGetRunResponse(
            run=found.runs[0], without_content="read_content" not in operator.scopes
        )
        # The chat must be read as its owner, not as the caller.
        owner = found.runs[0].chat_owner or found.runs[0].user
        with acting_as(Identity.from_stored(operator.tenant, owner)):
            try:
                run = await self._agents.GetRun(agent_pb2.GetRunRequest(run_id=request.run_id), context)
                response.detail.CopyFrom(run.run)
            except NotFound:
                pass  # a revert has left nothing to show; its row stays
            if request.include_events:
                chat = await stored_runs.get_chat(self._peers, memory_pb2.GetChatRequest(run_id=request.run_id))
                response.events.extend(chat.events)
        if response.without_content:
            strip_content(response.detail.error)
            for event in response.events:
                strip_content(event)
        elif request.include_events or response.detail.error.message:
            # Before it is shown: where it cannot be recorded, it is not read.
            await self._record("content.read", found.runs[0], operator)
        return response

    async def CancelRuns(
        self, request: operator_pb2.CancelRunsRequest, context: Context
    ) -> operator_pb2.CancelRunsResponse:
        operator = require_identity()
        wanted = _choose_runs(request)
        found = await self._list_runs(wanted)
        if found.HasField("index_progress") and not request.run_ids:
            raise IndexIncomplete("which runs there are is not known before the index is made; try again later")
        rows = {run.run_id: run for run in found.runs}
        places = asyncio.Semaphore(CANCELS_MAX)
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._cancel_run(run_id, rows.get(run_id), operator, places, context))
                for run_id in dict.fromkeys(request.run_ids or rows)
            ]
        return operator_pb2.CancelRunsResponse(
            runs=[task.result() for task in tasks], next_page_token=found.next_page_token
        )

    async def _cancel_run(
        self,
        run_id: str,
        run: operator_pb2.OperatorRun | None,
        operator: Identity,
        places: asyncio.Semaphore,
        context: Context,
    ) -> operator_pb2.CancelledRun:
        make = partial(operator_pb2.CancelledRun, run_id=run_id)
        if run is None:
            return make(status="not_found")
        if run.state not in _LIVE:
            return make(status="ended")
        request = agent_pb2.CancelRequest(run_id=run_id)
        async with places:
            try:
                # Recorded first: if recording fails, the run is not cancelled.
                await self._record("run.cancelled", run, operator)
                with acting_as(Identity.from_stored(operator.tenant, run.user)):
                    async with asyncio.timeout(CANCEL_TIMEOUT_S):
                        answer = await self._agents.Cancel(request, context)
            except TimeoutError:
                return make(status="failed", reason="PROVIDER_UNAVAILABLE")
            except NotFound:
                return make(status="not_found")
            except HeadraceError as error:
                return make(status="failed", reason=error.reason)
        return make(status="ended" if answer.state in STATES_BY_EVENT.values() else "cancelling")

    async def ListProviders(
        self, request: llm_pb2.ListProvidersRequest, context: Context
    ) -> llm_pb2.ListProvidersResponse:
        return await self._peers.llm.ListProviders(request)

    async def GetLimits(self, request: limits_pb2.GetLimitsRequest, context: Context) -> limits_pb2.GetLimitsResponse:
        return await self._limits.list_all(require_identity(), request)

    async def ListReplicas(
        self, request: operator_pb2.ListReplicasRequest, context: Context
    ) -> operator_pb2.ListReplicasResponse:
        operator = require_identity()
        with acting_as(None):
            unfinished = await stored_runs.list_unfinished(self._peers)
        owned = (run for run in unfinished if run.tenant == operator.tenant and run.owner)
        return operator_pb2.ListReplicasResponse(replicas=_group_by_owner(owned, self._owner.address))

    async def _record(self, event: str, run: operator_pb2.OperatorRun, operator: Identity) -> None:
        await self._audit.record(event, operator, chatId=run.chat_id, runId=run.run_id, of=run.user)
        log.info(
            event.replace(".", " "), run_id=run.run_id, of=run.user, by=operator.user, credential=operator.credential
        )

    async def _list_runs(self, request: operator_pb2.OperatorListRunsRequest) -> operator_pb2.OperatorListRunsResponse:
        return await self._peers.memory.ListRuns(request)


def _choose_runs(request: operator_pb2.CancelRunsRequest) -> operator_pb2.OperatorListRunsRequest:
    if bool(request.run_ids) == request.HasField("filter"):
        raise InvalidRequest.of("runIds", "or filter is required, and not both; {} is a filter")
    if request.run_ids:
        return operator_pb2.OperatorListRunsRequest(run_ids=request.run_ids, page_size=RUNS_MAX)
    if request.filter.state not in _LIVE:
        raise InvalidRequest.of("filter.state", "must be live, running or waiting, or absent")
    wanted = operator_pb2.OperatorListRunsRequest()
    wanted.CopyFrom(request.filter)
    wanted.state = wanted.state or "live"
    return wanted


def _group_by_owner(runs: Iterable[memory_pb2.UnfinishedRun], this: str) -> list[operator_pb2.Replica]:
    replicas = {this: operator_pb2.Replica(address=this, is_this=True, is_alive=True)}
    now = now_ms()
    for run in runs:
        replica = replicas.setdefault(run.owner, operator_pb2.Replica(address=run.owner))
        replica.runs += 1
        replica.lease_expires_at = max(replica.lease_expires_at, run.lease_expires_at)
        replica.is_alive |= run.lease_expires_at > now
    return [replicas[address] for address in sorted(replicas)]
