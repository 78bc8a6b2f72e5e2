"""Runs: their leases, the unfinished ones, and for operators all runs of a tenant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from headrace.v1 import memory_pb2, operator_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.storage.index_rows import describe_progress
from services.memory.storage.leases import lease_lost
from services.memory.storage.paging import parse_page, read_page
from services.memory.storage.run_query import RunQuery
from services.runtime.auth import identity
from services.runtime.clock import now_ms
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from services.memory.chats.access import ChatAccess
    from services.memory.storage.engine import Engine
    from services.runtime.rpc.interceptors import Context


class RunRpcs(MemoryServiceServicer):
    """The part of the memory service for runs and their owners."""

    _engine: Engine
    _access: ChatAccess

    async def AcquireLease(
        self, request: memory_pb2.AcquireLeaseRequest, context: Context
    ) -> memory_pb2.AcquireLeaseResponse:
        # For a run that memory does not know yet, the chat's owner gets that error.
        if not await self._access.owns_run(request.run_id):
            await self._access.find_own_row(request.chat_id)
        lease = await self._engine.leases.acquire(request.chat_id, request.run_id, request.owner, request.ttl_ms)
        return memory_pb2.AcquireLeaseResponse(generation=lease.generation, expires_at=lease.expires_at)

    async def RenewLease(
        self, request: memory_pb2.RenewLeaseRequest, context: Context
    ) -> memory_pb2.RenewLeaseResponse:
        if not await self._access.owns_run(request.run_id):
            raise lease_lost(request.run_id, request.generation)
        expires_at, lost = await self._engine.leases.renew({request.run_id: request.generation}, request.ttl_ms)
        if lost:
            raise lease_lost(request.run_id, request.generation)
        return memory_pb2.RenewLeaseResponse(expires_at=expires_at)

    async def RenewLeases(
        self, request: memory_pb2.RenewLeasesRequest, context: Context
    ) -> memory_pb2.RenewLeasesResponse:
        held = {lease.run_id: lease.generation for lease in request.leases}
        foreign: list[str] = []
        if not identity.is_own_account():
            foreign = [run_id for run_id in held if not await self._access.owns_run(run_id)]
        ours = {run_id: generation for run_id, generation in held.items() if run_id not in foreign}
        expires_at, lost = await self._engine.leases.renew(ours, request.ttl_ms)
        return memory_pb2.RenewLeasesResponse(expires_at=expires_at, lost_run_ids=[*foreign, *lost])

    async def ReleaseLease(
        self, request: memory_pb2.ReleaseLeaseRequest, context: Context
    ) -> memory_pb2.ReleaseLeaseResponse:
        if request.due_at < 0:
            raise InvalidRequest.of("dueAt", "must not be negative")
        if await self._access.owns_run(request.run_id):
            await self._engine.leases.release(request.run_id, request.generation, request.due_at)
        return memory_pb2.ReleaseLeaseResponse()

    async def ListUnfinishedRuns(
        self, request: memory_pb2.ListUnfinishedRunsRequest, context: Context
    ) -> memory_pb2.ListUnfinishedRunsResponse:
        chat_id = await self._access.find_chat_of_run(request.run_id) if request.run_id else None
        if request.run_id and chat_id is None:
            return memory_pb2.ListUnfinishedRunsResponse()
        progress = None if chat_id else self._engine.index.get_progress()
        options = {"without_owner": request.without_owner, "may_lag": request.may_lag}
        runs = [
            copy_fields(run, memory_pb2.UnfinishedRun, lease_expires_at=run.expires_at)
            for run in await self._engine.index.list_unfinished(chat_id, **options)
        ]
        return memory_pb2.ListUnfinishedRunsResponse(runs=runs, index_progress=describe_progress(progress))

    async def ListRuns(
        self, request: operator_pb2.OperatorListRunsRequest, context: Context
    ) -> operator_pb2.OperatorListRunsResponse:
        tenant = identity.require_scope("operate").tenant
        for field in ("older_than_ms", "began_after", "cost_at_least_nano_usd"):
            if getattr(request, field) < 0:
                raise InvalidRequest.of(request.DESCRIPTOR.fields_by_name[field].json_name, "must not be negative")
        size, after = parse_page(request.page_size, request.page_token)
        progress = self._engine.index.get_progress()
        runs, next_page_token = await read_page(
            self._engine.index.list_runs,
            RunQuery(
                tenant,
                size,
                after,
                state=request.state,
                agent_key=request.agent_key,
                user=request.user,
                began_before=max(now_ms() - request.older_than_ms, 0) if request.HasField("older_than_ms") else None,
                began_after=request.began_after if request.HasField("began_after") else None,
                cost_min=request.cost_at_least_nano_usd if request.HasField("cost_at_least_nano_usd") else None,
                run_ids=request.run_ids,
            ),
        )
        return operator_pb2.OperatorListRunsResponse(
            runs=[copy_fields(run, operator_pb2.OperatorRun) for run in runs],
            next_page_token=next_page_token,
            index_progress=describe_progress(progress),
        )
