"""The RPCs of leases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from headrace.v1 import memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.storage.leases import lease_lost
from services.runtime.auth import identity

if TYPE_CHECKING:
    from services.memory.access.chat_access import ChatAccess
    from services.memory.storage.engine import Engine
    from services.runtime.rpc.interceptors import Context


class LeaseRpcs(MemoryServiceServicer):
    """The part of the memory service that says who may write to a run."""

    _engine: Engine
    _access: ChatAccess

    async def AcquireLease(
        self, request: memory_pb2.AcquireLeaseRequest, context: Context
    ) -> memory_pb2.AcquireLeaseResponse:
        # Of a run that memory does not know yet, the chat's owner is told so.
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
