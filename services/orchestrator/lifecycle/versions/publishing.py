"""The RPCs that keep agents of a tenant: put, deleted and read back."""

from __future__ import annotations

import asyncio
from functools import partial

import orjson

from headrace.errors import KeyTaken, NotFound
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.agents.definition import Definition, parse_agent
from services.orchestrator.agents.registry import Registry
from services.orchestrator.agents.stored_agents import StoredAgent
from services.orchestrator.agents.tenant_view import FILE_WINS
from services.orchestrator.lifecycle.versions.pins import Pins
from services.orchestrator.lifecycle.versions.validation import make_problem, validate_agent
from services.orchestrator.lifecycle.versions.version_rpcs import check_number, read_version
from services.orchestrator.peers.stubs import Peers
from services.runtime.auth.identity import acting_as, require_identity


class Publishing:
    def __init__(self, peers: Peers, registry: Registry, pins: Pins) -> None:
        self._peers = peers
        self._registry = registry
        self._pins = pins

    async def put(
        self, request: agent_pb2.PutAgentRequest, modes: list[str]
    ) -> tuple[Definition | None, list[agent_pb2.DefinitionProblem]]:
        """Store an agent, and return it as it is in force; None where it has errors, which are among the problems.

        Raises:
            KeyTaken, VersionConflict, QuotaExceeded: It cannot be stored.
        """
        await self.look()
        found, problems = await self.validate(request.definition, request.agent_key, modes)
        if any(problem.rule == FILE_WINS for problem in problems):
            raise KeyTaken(f"{FILE_WINS}; take another key", field="key")
        if found is None:
            return None, problems
        agent = await asyncio.to_thread(parse_agent, request.definition.encode(), request.agent_key)
        agent.take_tenant(require_identity().tenant)
        version = await self._pins.publish(agent, self._registry.beside(agent))
        stored = memory_pb2.PutAgentDefinitionRequest(
            agent_key=agent.key, definition=request.definition, version=version.number
        )
        if request.HasField("expected_version"):
            stored.expected_version = request.expected_version
        await self._peers.memory.PutAgentDefinition(stored)
        await self.look()
        return agent, problems

    async def delete(self, request: agent_pb2.DeleteAgentRequest) -> None:
        """Raises NotFound, VersionConflict."""
        removed = memory_pb2.DeleteAgentDefinitionRequest(agent_key=request.agent_key)
        if request.HasField("expected_version"):
            removed.expected_version = request.expected_version
        await self._peers.memory.DeleteAgentDefinition(removed)
        await self.look()

    async def validate(
        self, definition: str, agent_key: str, modes: list[str]
    ) -> tuple[Definition | None, list[agent_pb2.DefinitionProblem]]:
        """Find what is wrong with a definition that is to be the current tenant's."""
        check = partial(self._registry.find_problems, tenant=require_identity().tenant)
        return await validate_agent(self._peers, self._registry.by_key, modes, definition, agent_key, check)

    async def list_stored(self) -> agent_pb2.ListStoredAgentsResponse:
        await self.look()
        stored = self._registry.stored.list_of(require_identity().tenant)
        return agent_pb2.ListStoredAgentsResponse(agents=[self._describe(stored[key]) for key in sorted(stored)])

    async def get_definition(
        self, request: agent_pb2.GetAgentDefinitionRequest
    ) -> agent_pb2.GetAgentDefinitionResponse:
        """Raises NotFound."""
        check_number("version", request.version)
        if request.version:
            found = await read_version(self._peers, request.agent_key, request.version, is_shared=False)
            source = orjson.loads(found.definition)["agents"][request.agent_key]
            text = orjson.dumps(source, option=orjson.OPT_INDENT_2).decode()
            return agent_pb2.GetAgentDefinitionResponse(definition=text, version=request.version)
        await self.look()
        stored = self._registry.stored.list_of(require_identity().tenant).get(request.agent_key.casefold())
        if stored is None or stored.record.agent_key != request.agent_key:
            raise NotFound(f"the tenant has no agent {request.agent_key!r} of its own", agentKey=request.agent_key)
        record = stored.record
        return agent_pb2.GetAgentDefinitionResponse(
            definition=record.definition, version=record.version, stored=self._describe(stored)
        )

    def list_problems(self) -> list[agent_pb2.AgentProblem]:
        """List stored agents of the tenant that are not in force, and those in whose place a file's would be."""
        view = self._registry.view
        found = [
            agent_pb2.AgentProblem(agent_key=key, problem=f"{problem.field}: {problem.rule}")
            for key in sorted(view.problems)
            for problem in view.problems[key]
        ]
        hides = "key: a file has an agent of this key, in whose place the tenant has its own: the store wins"
        return [*found, *(agent_pb2.AgentProblem(agent_key=key, problem=hides) for key in view.hidden)]

    async def look(self) -> None:
        """Read now what has changed, on this and other replicas."""
        await self._registry.stored.look(partial(read_changes, self._peers))

    def _describe(self, stored: StoredAgent) -> agent_pb2.StoredAgent:
        record = stored.record
        return agent_pb2.StoredAgent(
            key=record.agent_key,
            version=record.version,
            updated_at=record.updated_at,
            updated_by=record.updated_by,
            problems=map(make_problem, self._registry.view.problems.get(record.agent_key, ())),
        )


async def read_changes(peers: Peers, after_revision: int) -> memory_pb2.ReadAgentChangesResponse:
    request = memory_pb2.ReadAgentChangesRequest(after_revision=after_revision)
    with acting_as(None):
        return await peers.memory.ReadAgentChanges(request)
