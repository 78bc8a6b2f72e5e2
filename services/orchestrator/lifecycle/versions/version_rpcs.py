"""The RPCs that show versions of agents.

A key means the agent in force, the tenant's own or the operator's. Where none is, it means the tenant's own if that has
had versions, else the operator's.
"""

from __future__ import annotations

from headrace.errors import InvalidRequest, NotFound
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.agents.registry import Registry
from services.orchestrator.agents.version_diff import diff_documents
from services.orchestrator.lifecycle.versions.pins import read_stored
from services.orchestrator.peers.stubs import Peers

CHANGES_MAX = 1000


async def list_versions(
    peers: Peers, registry: Registry, request: agent_pb2.ListAgentVersionsRequest
) -> agent_pb2.ListAgentVersionsResponse:
    is_shared = await _is_shared(peers, registry, request.agent_key)
    versions = await find_versions(peers, request.agent_key, request.before, request.page_size, is_shared=is_shared)
    if not versions and not request.before:
        raise _make_not_found(request.agent_key)
    return agent_pb2.ListAgentVersionsResponse(versions=versions)


async def get_version(
    peers: Peers, registry: Registry, request: agent_pb2.GetAgentVersionRequest
) -> agent_pb2.GetAgentVersionResponse:
    check_number("version", request.version)
    is_shared = await _is_shared(peers, registry, request.agent_key)
    return await read_version(peers, request.agent_key, request.version, is_shared=is_shared)


async def diff_versions(
    peers: Peers, registry: Registry, request: agent_pb2.DiffAgentVersionsRequest
) -> agent_pb2.DiffAgentVersionsResponse:
    check_number("fromVersion", request.from_version)
    check_number("toVersion", request.to_version)
    is_shared = await _is_shared(peers, registry, request.agent_key)
    after = await read_version(peers, request.agent_key, request.to_version, is_shared=is_shared)
    number = request.from_version or after.version.version - 1
    if number < 1:
        raise NotFound(f"agent {request.agent_key!r} has no version before its first", agentKey=request.agent_key)
    before = await read_version(peers, request.agent_key, number, is_shared=is_shared)
    changes = diff_documents(before.definition, after.definition)[:CHANGES_MAX]
    return agent_pb2.DiffAgentVersionsResponse(
        changes=[
            agent_pb2.AgentChange(path=change.path, before=change.before, after=change.after) for change in changes
        ]
    )


async def read_version(
    peers: Peers, agent_key: str, number: int, *, is_shared: bool
) -> agent_pb2.GetAgentVersionResponse:
    """Return a version by its number, the newest for 0, of the operator's agent or of the tenant's. Raises NotFound."""
    if not number:
        newest = await find_versions(peers, agent_key, 0, 1, is_shared=is_shared)
        if not newest:
            raise _make_not_found(agent_key)
        number = newest[0].version
    request = memory_pb2.ReadAgentVersionRequest(agent_key=agent_key, version=number, is_shared=is_shared)
    stored = await read_stored(peers, request)
    version = agent_pb2.AgentVersion(
        agent_key=agent_key, version=stored.version, hash=stored.hash, created_at=stored.created_at
    )
    return agent_pb2.GetAgentVersionResponse(version=version, definition=stored.definition)


async def find_versions(
    peers: Peers, agent_key: str, before: int, size: int, *, is_shared: bool
) -> list[agent_pb2.AgentVersion]:
    request = memory_pb2.FindAgentVersionsRequest(
        agent_key=agent_key, is_shared=is_shared, before=before, page_size=size
    )
    reply = await peers.memory.FindAgentVersions(request)
    return list(reply.versions)


async def _is_shared(peers: Peers, registry: Registry, agent_key: str) -> bool:
    """Return whether the key's versions are those of the operator's agent."""
    agent = registry.by_key.get(agent_key)
    if agent is not None:
        return not agent.tenant
    return not await find_versions(peers, agent_key, 0, 1, is_shared=False)


def check_number(field: str, number: int) -> None:
    if number < 0:
        raise InvalidRequest.of(field, "must be the number of a version, or 0")


def _make_not_found(agent_key: str) -> NotFound:
    return NotFound(f"agent {agent_key!r} has had no run that was pinned to a version", agentKey=agent_key)
