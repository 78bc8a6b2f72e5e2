"""The RPCs of agents' versions, and of tenants' agents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import grpc

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2, memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.agents.store import AgentStore
from services.memory.storage.paging import Page
from services.memory.storage.records.agent_versions import SHARED, VERSIONS_MAX
from services.runtime.auth import identity

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.memory.storage.records.agents import StoredAgent

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]


class AgentRpcs(MemoryServiceServicer):
    """The part of the memory service that keeps what runs are pinned to, and tenants' agents."""

    _engine: Engine

    async def PutAgentVersion(
        self, request: memory_pb2.PutAgentVersionRequest, context: Context
    ) -> memory_pb2.PutAgentVersionResponse:
        tenant = _find_tenant(is_shared=request.is_shared)
        versions = self._engine.records.agent_versions
        kept, is_new = await versions.put(tenant, request.agent_key, request.definition.encode())
        if is_new:
            who = identity.get_identity()
            facts: dict[str, Any] = {"agentKey": kept.agent_key, "version": kept.version, "agentHash": kept.hash}
            first = who.user if who is not None else ""
            await self._engine.audit.record_of(tenant, "agent.published", firstUsedBy=first, **facts)
        return memory_pb2.PutAgentVersionResponse(version=kept.version, hash=kept.hash)

    async def ReadAgentVersion(
        self, request: memory_pb2.ReadAgentVersionRequest, context: Context
    ) -> memory_pb2.ReadAgentVersionResponse:
        tenant = _find_tenant(is_shared=request.is_shared)
        found = await self._engine.records.agent_versions.find(
            tenant, request.agent_key, version=request.version, digest=request.hash
        )
        if found is None:
            wanted = request.version or request.hash
            raise NotFound(f"agent {request.agent_key!r} has no version {wanted}", agentKey=request.agent_key)
        kept, definition = found
        return memory_pb2.ReadAgentVersionResponse(
            version=kept.version, hash=kept.hash, created_at=kept.created_at, definition=definition.decode()
        )

    async def FindAgentVersions(
        self, request: memory_pb2.FindAgentVersionsRequest, context: Context
    ) -> memory_pb2.FindAgentVersionsResponse:
        if request.before < 0:
            raise InvalidRequest.of("before", "must not be negative")
        size = Page.parse(request.page_size, "").size
        tenant = _find_tenant(is_shared=request.is_shared)
        found = await self._engine.records.agent_versions.list_before(
            tenant, request.agent_key, request.before or VERSIONS_MAX + 1, size
        )
        return memory_pb2.FindAgentVersionsResponse(
            versions=[
                agent_pb2.AgentVersion(
                    agent_key=kept.agent_key, version=kept.version, hash=kept.hash, created_at=kept.created_at
                )
                for kept in found
            ]
        )

    async def PutAgentDefinition(
        self, request: memory_pb2.PutAgentDefinitionRequest, context: Context
    ) -> memory_pb2.PutAgentDefinitionResponse:
        agent, is_changed = await self._stored.put(
            request.agent_key, request.definition, request.version, _find_expected(request)
        )
        if is_changed:
            await self._record("agent.put", agent)
        return memory_pb2.PutAgentDefinitionResponse(agent=_make_record(agent))

    async def DeleteAgentDefinition(
        self, request: memory_pb2.DeleteAgentDefinitionRequest, context: Context
    ) -> memory_pb2.DeleteAgentDefinitionResponse:
        agent = await self._stored.remove(request.agent_key, _find_expected(request))
        await self._record("agent.removed", agent)
        return memory_pb2.DeleteAgentDefinitionResponse()

    async def ReadAgentChanges(
        self, request: memory_pb2.ReadAgentChangesRequest, context: Context
    ) -> memory_pb2.ReadAgentChangesResponse:
        found, has_more = await self._stored.list_changes(request.after_revision)
        revision = found[-1].revision if found else request.after_revision
        return memory_pb2.ReadAgentChangesResponse(
            agents=map(_make_record, found), revision=revision, has_more=has_more
        )

    @property
    def _stored(self) -> AgentStore:
        return AgentStore(self._engine.records.agents)

    async def _record(self, event: str, agent: StoredAgent) -> None:
        facts: dict[str, Any] = {"agentKey": agent.agent_key, "version": agent.agent_version}
        await self._engine.audit.record(event, identity.require_identity(), **facts)


def _find_tenant(*, is_shared: bool) -> str:
    return SHARED if is_shared else identity.require_identity().tenant


def _find_expected(
    request: memory_pb2.PutAgentDefinitionRequest | memory_pb2.DeleteAgentDefinitionRequest,
) -> int | None:
    return request.expected_version if request.HasField("expected_version") else None


def _make_record(agent: StoredAgent) -> memory_pb2.AgentRecord:
    return memory_pb2.AgentRecord(
        tenant=agent.tenant,
        agent_key=agent.agent_key,
        definition=agent.definition,
        version=agent.agent_version,
        updated_at=agent.updated_at,
        updated_by=agent.updated_by,
    )
