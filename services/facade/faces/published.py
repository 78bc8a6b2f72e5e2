"""The agents that a face shows; to its callers there are no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import grpc

from headrace.errors import NotFound
from headrace.streams import rpc_errors
from headrace.v1 import agent_pb2, agent_pb2_grpc
from services.runtime.rpc import call_ids

UNARY_TIMEOUT_S = 30.0


class PublishedAgents:
    def __init__(self, orchestrator: grpc.aio.Channel, face: str, published_faces: frozenset[str]) -> None:
        """`published_faces` are those that show all agents, whatever their files say."""
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._agents: Any = agent_pb2_grpc.AgentServiceStub(orchestrator)
        self._face = face
        self._shows_all = face in published_faces

    async def list_agents(self) -> Sequence[agent_pb2.Agent]:
        request = agent_pb2.ListAgentsRequest()
        with rpc_errors():
            reply = await self._agents.ListAgents(
                request, timeout=UNARY_TIMEOUT_S, metadata=call_ids.forward_metadata()
            )
        return [agent for agent in reply.agents if self._shows_all or self._face in agent.publish]

    async def get_agent(self, key: str) -> agent_pb2.Agent:
        """Return an agent; one that is not published is not found, in the words of one that is not there."""
        found = next((agent for agent in await self.list_agents() if agent.key == key), None)
        if found is None:
            raise NotFound(f"no agent {key[:128]!r} is published here", field="agentKey")
        return found
