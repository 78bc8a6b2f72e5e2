"""Versions of agents that runs are pinned to, and tenants' own agents."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headrace.errors import InvalidRequest, NotFound, Overloaded, QuotaExceeded, VersionConflict
from headrace.v1 import agent_pb2, memory_pb2
from headrace.v1.memory_pb2_grpc import MemoryServiceServicer
from services.memory.storage.paging import Page
from services.memory.storage.records.agent_versions import SHARED, VERSIONS_MAX
from services.memory.storage.records.agents import StoredAgent
from services.memory.storage.records.kind import TRIES_MAX, make_version
from services.runtime.auth import identity
from services.runtime.clock import now_ms
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.memory.storage.records.agents import StoredAgents
    from services.runtime.rpc.interceptors import Context


class AgentRpcs(MemoryServiceServicer):
    """RPCs of the memory service for agent versions and tenants' agents."""

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
        return copy_fields(kept, memory_pb2.PutAgentVersionResponse)

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
        return copy_fields(kept, memory_pb2.ReadAgentVersionResponse, definition=definition.decode())

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
            versions=[copy_fields(kept, agent_pb2.AgentVersion) for kept in found]
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
        found, has_more = await self._stored.list_changes(request.after_revision, may_lag=request.may_lag)
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
    return copy_fields(agent, memory_pb2.AgentRecord, version=agent.agent_version)


TENANT_AGENTS_MAX = 200

TENANT_BYTES_MAX = 8 * 1024 * 1024
"""Maximum bytes of a tenant's definitions together, because every orchestrator holds them in memory."""

AGENTS_MAX = 10_000
"""Agents of all tenants."""

KEPT_MS = 30 * 86_400_000
"""How long a removed agent stays in the changes, long after every replica has read it."""

PAGE_AGENTS, PAGE_BYTES = 100, 2 * 1024 * 1024
"""Maximum agents per response to a service, and the size in bytes at which it ends."""


class AgentStore:
    def __init__(self, agents: StoredAgents, clock: Callable[[], int] = now_ms) -> None:
        """`clock` returns Unix milliseconds."""
        self._agents = agents
        self._clock = clock

    async def put(
        self, agent_key: str, definition: str, agent_version: int, expected: int | None
    ) -> tuple[StoredAgent, bool]:
        """Store the agent; return it, and whether that changed it.

        Raises:
            VersionConflict: A version other than `expected` is stored; 0 if none is stored.
            QuotaExceeded: The tenant has no room for it.
        """

        def change(stored: StoredAgent | None) -> StoredAgent | None:
            if stored is not None and stored.agent_key != agent_key and stored.definition:
                raise InvalidRequest.of("key", f"differs in case alone from that of the agent {stored.agent_key!r}")
            if stored is not None and (stored.definition, stored.agent_version) == (definition, agent_version):
                return None
            _check_expected(stored, expected, agent_key)
            return self._make(agent_key, stored, definition, agent_version)

        return await self._change(agent_key, change)

    async def remove(self, agent_key: str, expected: int | None) -> StoredAgent:
        """Remove the agent and return its stored tombstone. Raises NotFound, VersionConflict."""

        def change(stored: StoredAgent | None) -> StoredAgent:
            if stored is None or not stored.definition or stored.agent_key != agent_key:
                raise NotFound(f"the tenant has not stored an agent {agent_key!r}", agentKey=agent_key)
            _check_expected(stored, expected, agent_key)
            return self._make(agent_key, stored, "", stored.agent_version)

        return (await self._change(agent_key, change))[0]

    async def list_changes(self, after_revision: int, *, may_lag: bool) -> tuple[list[StoredAgent], bool]:
        """Return agents of all tenants changed after the revision, and whether there are more."""
        found = await self._agents.list_changes(after_revision, PAGE_AGENTS + 1, may_lag=may_lag)
        page: list[StoredAgent] = []
        left = PAGE_BYTES
        for agent in found[:PAGE_AGENTS]:
            if left <= 0:
                break
            page.append(agent)
            left -= len(agent.definition)
        return page, len(found) > len(page)

    async def _change(
        self, agent_key: str, change: Callable[[StoredAgent | None], StoredAgent | None]
    ) -> tuple[StoredAgent, bool]:
        """Apply `change` to the stored agent, again after each concurrent change.

        If it returns None, the stored agent is written again unchanged, as in Records.change.
        """
        tenant = identity.require_identity().tenant
        for _ in range(TRIES_MAX):
            stored = await self._agents.find_agent(tenant, agent_key)
            changed = change(stored)
            is_changed = changed is not None
            if changed is None:
                assert stored is not None, "there is nothing to store once more"
                changed = stored
            elif changed.definition:
                await self._check_room(changed, stored)
            if await self._agents.put(changed, stored.version if stored is not None else 0):
                return changed, is_changed
        raise Overloaded("the agent is being changed by others; try again later")

    def _make(self, agent_key: str, stored: StoredAgent | None, definition: str, agent_version: int) -> StoredAgent:
        caller, now = identity.require_identity(), self._clock()
        if stored is None:
            return StoredAgent(caller.tenant, agent_key, make_version(), agent_version, now, caller.user, definition)
        return replace(
            stored,
            agent_key=agent_key,
            version=make_version(),
            agent_version=agent_version,
            updated_at=now,
            updated_by=caller.user,
            definition=definition,
        )

    async def _check_room(self, changed: StoredAgent, stored: StoredAgent | None) -> None:
        """Check the tenant's limits, after forgetting agents removed long ago. Raises QuotaExceeded."""
        await self._agents.forget(self._clock() - KEPT_MS)
        use = await self._agents.measure(changed.tenant)
        before = stored.definition if stored is not None else ""
        if not before and use.own >= TENANT_AGENTS_MAX:
            raise QuotaExceeded(f"{TENANT_AGENTS_MAX} agents are there already", limit=TENANT_AGENTS_MAX)
        if not before and use.everybodys >= AGENTS_MAX:
            raise QuotaExceeded(f"all tenants together have {AGENTS_MAX} agents already", limit=AGENTS_MAX)
        size = len(changed.definition.encode())
        if size > len(before.encode()) and use.own_bytes - len(before.encode()) + size > TENANT_BYTES_MAX:
            rule = f"the definitions of a tenant's agents have {TENANT_BYTES_MAX} bytes at most"
            raise QuotaExceeded(rule, limit=TENANT_BYTES_MAX)


def _check_expected(stored: StoredAgent | None, expected: int | None, agent_key: str) -> None:
    version = stored.agent_version if stored is not None and stored.definition else 0
    if expected is not None and expected != version:
        there_is = f"version {version} is in force" if version else "there is no such agent"
        raise VersionConflict(f"agent {agent_key!r}: {there_is}, not {expected}", agentKey=agent_key, version=version)
