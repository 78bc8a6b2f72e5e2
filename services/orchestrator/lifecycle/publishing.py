"""RPCs about agent definitions: validation, a tenant's storage, and versions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeAlias

import orjson

from headrace.errors import InvalidRequest, KeyTaken, NotFound
from headrace.v1 import agent_pb2, memory_pb2
from services.orchestrator.agents.definition import Definition, parse_agent
from services.orchestrator.agents.definition.problems import (
    Problem,
    find_problems,
    list_tool_names,
    list_unknown,
    number_names,
)
from services.orchestrator.agents.registry import Registry
from services.orchestrator.agents.stored_agents import FILE_WINS, StoredAgent
from services.orchestrator.agents.version import TIERS, diff_documents
from services.orchestrator.calls.own_tools.catalogue import NAMES
from services.orchestrator.lifecycle.pins import LISTING_S, Pins, list_known, read_stored
from services.orchestrator.peers.stubs import Peers
from services.orchestrator.setup import skills, tool_selection
from services.runtime.auth.identity import acting_as, require_identity

PROBLEMS_MAX = 500

Check: TypeAlias = Callable[[Definition], list[Problem]]

FREE_TOOLS = NAMES | TIERS.keys()
"""Valid names in a tool list that no tools service knows: the orchestrator's own tools, and tier names."""


async def validate_agent(
    peers: Peers,
    existing: Mapping[str, Definition],
    modes: Collection[str],
    definition: str,
    agent_key: str,
    check: Check | None = None,
) -> tuple[Definition | None, list[agent_pb2.DefinitionProblem]]:
    """Return the agent, or None if it has an error, and all problems; `check` adds those that depend on its owner."""
    # Half a megabyte of JSON takes longer than others should wait.
    agent, problems = await asyncio.to_thread(find_problems, definition.encode(), agent_key, check)
    if agent is not None:
        problems += await _find_missing(peers, existing, agent)
        if agent.custom is not None:
            problems += list_unknown(iter([("custom.mode", agent.custom.mode)]), frozenset(modes), "mode")
    return agent, [make_problem(problem) for problem in problems[:PROBLEMS_MAX]]


def make_problem(problem: Problem) -> agent_pb2.DefinitionProblem:
    return agent_pb2.DefinitionProblem(field=problem.field, rule=problem.rule, is_warning=problem.is_warning)


async def _find_missing(peers: Peers, existing: Mapping[str, Definition], agent: Definition) -> list[Problem]:
    """Warn of names in the agent that do not exist; kinds that the tools service cannot list now are skipped."""
    known = frozenset({agent.key.casefold(), *(key.casefold() for key in existing)})
    found = list_unknown(number_names("subagents", agent.subagents), known, "agent")
    if agent.listed_tools:
        tools = await list_known(peers.tool_list, partial(tool_selection.fetch_tools, peers, LISTING_S))
        if tools is not None:
            catalogue = tool_selection.ToolCatalogue(tools)
            names = FREE_TOOLS | {tool.name.casefold() for tool in tools}
            # Tools that an MCP server lists per user are unknown here.
            named = (each for each in list_tool_names(agent) if not catalogue.find_connecting(each[1]))
            found += list_unknown(named, names, "tool")
    if agent.skills:
        offered = await list_known(peers.skill_list, partial(skills.fetch_skills, peers, LISTING_S))
        if offered is not None:
            given = frozenset(name.casefold() for skill in offered.skills for name in (skill.id, skill.name))
            found += list_unknown(number_names("skills", agent.skills), given, "skill")
    return found


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
    """Return a version by its number, or the newest for 0, of the operator's or the tenant's agent. Raises NotFound."""
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


class Publishing:
    def __init__(self, peers: Peers, registry: Registry, pins: Pins) -> None:
        self._peers = peers
        self._registry = registry
        self._pins = pins

    async def put(
        self, request: agent_pb2.PutAgentRequest, modes: list[str]
    ) -> tuple[Definition | None, list[agent_pb2.DefinitionProblem]]:
        """Store an agent; return it as in force and all problems. It is None, and not stored, if a problem is an error.

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
        version = await self._pins.publish(agent, self._registry.get_reachable(agent))
        stored = memory_pb2.PutAgentDefinitionRequest(
            agent_key=agent.key, definition=request.definition, version=version.number
        )
        if request.HasField("expected_version"):
            stored.expected_version = request.expected_version
        await self._peers.memory.PutAgentDefinition(stored)
        await self.look()
        return agent, problems

    async def delete(self, request: agent_pb2.DeleteAgentRequest) -> None:
        """Delete the agent. Raises NotFound, VersionConflict."""
        removed = memory_pb2.DeleteAgentDefinitionRequest(agent_key=request.agent_key)
        if request.HasField("expected_version"):
            removed.expected_version = request.expected_version
        await self._peers.memory.DeleteAgentDefinition(removed)
        await self.look()

    async def validate(
        self, definition: str, agent_key: str, modes: list[str]
    ) -> tuple[Definition | None, list[agent_pb2.DefinitionProblem]]:
        """Return the problems of a definition for the current tenant, and the agent if it has no error."""
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
            match orjson.loads(found.definition):
                case {"agents": {request.agent_key: source}}:
                    pass
                case _:  # its writer is trusted, and was wrong
                    why = f"version {request.version} of agent {request.agent_key!r} keeps no definition of it"
                    raise NotFound(why, agentKey=request.agent_key)
            text = orjson.dumps(source, option=orjson.OPT_INDENT_2).decode()
            return agent_pb2.GetAgentDefinitionResponse(definition=text, version=request.version)
        await self.look()
        stored = self._registry.stored.list_of(require_identity().tenant).get(request.agent_key.casefold())
        if stored is None or stored.record.agent_key != request.agent_key:
            raise NotFound(f"the tenant has not stored an agent {request.agent_key!r}", agentKey=request.agent_key)
        record = stored.record
        return agent_pb2.GetAgentDefinitionResponse(
            definition=record.definition, version=record.version, stored=self._describe(stored)
        )

    def list_problems(self) -> list[agent_pb2.AgentProblem]:
        """List the tenant's stored agents that are not in force, and those that hide a file's agent."""
        view = self._registry.view
        found = [
            agent_pb2.AgentProblem(agent_key=key, problem=str(problem))
            for key in sorted(view.problems)
            for problem in view.problems[key]
        ]
        hides = "key: a file has an agent of this key, in whose place the tenant has its own: the store wins"
        return [*found, *(agent_pb2.AgentProblem(agent_key=key, problem=hides) for key in view.hidden)]

    async def look(self) -> None:
        """Read the latest changes now, from this and other replicas."""
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


async def read_changes(
    peers: Peers, after_revision: int, *, may_lag: bool = False
) -> memory_pb2.ReadAgentChangesResponse:
    request = memory_pb2.ReadAgentChangesRequest(after_revision=after_revision, may_lag=may_lag)
    with acting_as(None):
        return await peers.memory.ReadAgentChanges(request)
