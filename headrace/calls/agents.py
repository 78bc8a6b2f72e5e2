"""The client's calls about a tenant's own agents; they need a credential with the scope `publish`."""

from __future__ import annotations

from typing import Any

from headrace.calls.unary import UnaryCalls
from headrace.v1 import agent_pb2


class AgentCalls(UnaryCalls):
    _agents: Any

    async def put_agent(
        self, definition: str, agent_key: str | None = None, *, expected_version: int | None = None
    ) -> agent_pb2.PutAgentResponse:
        """Bring an agent of the tenant in force; with errors, which are all among `problems`, it is not `is_stored`.

        `expected_version` is the one that the caller has seen in force, 0 for none: another raises VersionConflict.
        """
        request = agent_pb2.PutAgentRequest(
            definition=definition, agent_key=agent_key, expected_version=expected_version
        )
        return await self._send(self._agents.PutAgent, request)

    async def delete_agent(self, agent_key: str, *, expected_version: int | None = None) -> None:
        """Take an agent of the tenant out of force; its runs go on."""
        request = agent_pb2.DeleteAgentRequest(agent_key=agent_key, expected_version=expected_version)
        await self._send(self._agents.DeleteAgent, request)

    async def stored_agents(self) -> list[agent_pb2.StoredAgent]:
        """Return the tenant's own agents, ordered by key, also those that are not in force."""
        request = agent_pb2.ListStoredAgentsRequest()
        reply: agent_pb2.ListStoredAgentsResponse = await self._send(self._agents.ListStoredAgents, request)
        return list(reply.agents)

    async def agent_definition(self, agent_key: str, version: int = 0) -> agent_pb2.GetAgentDefinitionResponse:
        """Return the definition of an agent of the tenant as it was put last, or that of an earlier version."""
        request = agent_pb2.GetAgentDefinitionRequest(agent_key=agent_key, version=version)
        return await self._send(self._agents.GetAgentDefinition, request)
