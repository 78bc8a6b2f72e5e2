"""Agents that tenants have stored in memory, and each tenant's view of all agents."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import grpc
import structlog

from headrace.errors import HeadraceError
from headrace.v1 import memory_pb2
from services.orchestrator.agents.definition import Definition, DefinitionError, parse_agent
from services.orchestrator.agents.definition.problems import Problem
from services.orchestrator.agents.grants import TenantGrants, find_ungranted

PAGES_MAX = 100_000
"""Maximum pages per poll; all agents fit in fewer."""

UNKNOWN_S = 30.0
"""Time between polls while memory does not support the RPC, during an upgrade."""

ReadChanges: TypeAlias = Callable[[int], Awaitable[memory_pb2.ReadAgentChangesResponse]]
"""Reads the agents changed since a revision; raises HeadraceError or AioRpcError."""

NONE: Mapping[str, StoredAgent] = {}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StoredAgent:
    record: memory_pb2.AgentRecord
    agent: Definition | None
    """None if this release cannot read it."""
    problem: str = ""
    """Why it cannot."""


class StoredAgents:
    def __init__(self) -> None:
        self._by_tenant: dict[str, Mapping[str, StoredAgent]] = {}
        self._revision = 0
        self._is_complete = False
        """Whether every poll since the first full read has succeeded."""
        self._is_away = False
        self._looking = asyncio.Lock()

    def list_of(self, tenant: str) -> Mapping[str, StoredAgent]:
        """Return the tenant's agents by key in small letters; a change replaces the mapping."""
        return self._by_tenant.get(tenant, NONE)

    async def follow(self, read: ReadChanges, poll_s: float) -> None:
        """Poll for changes every `poll_s` seconds, forever."""
        while True:
            await asyncio.sleep(poll_s)
            try:
                await self.look(read)
            except HeadraceError as error:
                if not self._is_away:
                    log.warning("tenants' agents cannot be read", reason=error.reason)
                self._is_away = True
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                    raise
                await asyncio.sleep(UNKNOWN_S)
            else:
                self._is_away = False

    async def look(self, read: ReadChanges) -> None:
        """Read the changes once; raises the errors of `read`."""
        async with self._looking:
            try:
                records = await self._read_records(read)
                found = await asyncio.to_thread(lambda: [_parse(record) for record in records]) if records else []
            except (HeadraceError, grpc.aio.AioRpcError):
                # The store may be another one when it is back, and count on from where a copy of it was.
                self._is_complete = False
                raise
            self._take(found)

    async def _read_records(self, read: ReadChanges) -> list[memory_pb2.AgentRecord]:
        after, records = self._revision if self._is_complete else 0, list[memory_pb2.AgentRecord]()
        for _ in range(PAGES_MAX):
            page = await read(after)
            records += page.agents
            after = page.revision
            if not page.has_more:
                break
        self._revision = after
        return records

    def _take(self, found: list[StoredAgent]) -> None:
        known = self._by_tenant if self._is_complete else {}
        if found or not self._is_complete:
            changed = {stored.record.tenant: dict(known.get(stored.record.tenant, {})) for stored in found}
            for stored in found:
                own, key = changed[stored.record.tenant], stored.record.agent_key.casefold()
                own.pop(key, None)
                if stored.record.definition:
                    own[key] = stored
            self._by_tenant = {tenant: own for tenant, own in (known | changed).items() if own}
            log.info("tenants' agents in force", changed=len(found), tenants=len(self._by_tenant))
        self._is_complete = True


def _parse(record: memory_pb2.AgentRecord) -> StoredAgent:
    if not record.definition:
        return StoredAgent(record, None)
    try:
        agent = parse_agent(record.definition.encode(), record.agent_key)
    except DefinitionError as error:
        return StoredAgent(record, None, str(error).partition("\n")[0])
    return StoredAgent(record, agent.take_tenant(record.tenant))


FILE_WINS = "the operator has an agent of this key in a file, and files win"


@dataclass(frozen=True)
class TenantView:
    agents: Mapping[str, Definition]
    """The agents in force, by key; keys differ in more than case."""

    reachable: Mapping[str, Definition]
    """Agents that runs of the tenant's own agents may reach: its own, granted agents of files, and the sub-agents of
    those."""

    problems: Mapping[str, list[Problem]] = field(default_factory=dict[str, "list[Problem]"])
    """Why stored agents are not in force, by key."""

    hidden: Collection[str] = ()
    """Keys of file agents that the tenant's own agents replace."""


def make_view(
    files: Mapping[str, Definition],
    stored: Mapping[str, StoredAgent],
    grants: TenantGrants,
    free_tools: Collection[str],
    *,
    files_win: bool,
) -> TenantView:
    operators = {key.casefold(): agent for key, agent in files.items()}
    problems: dict[str, list[Problem]] = {}
    own: dict[str, Definition] = {}
    for folded, one in stored.items():
        found = [Problem("", f"this release cannot read it: {one.problem}")]
        if one.agent is not None:
            found = find_ungranted(one.agent, grants, free_tools, operators.keys())
        if files_win and folded in operators:
            found.insert(0, Problem("key", FILE_WINS))
        if found:
            problems[one.record.agent_key] = found
        elif one.agent is not None:
            own[one.agent.key] = one.agent
    taken = {key.casefold() for key in own}
    granted = [agent for agent in operators.values() if grants.allows_subagent(agent.key)]
    return TenantView(
        agents={key: agent for key, agent in files.items() if key.casefold() not in taken} | own if own else files,
        reachable={agent.key: agent for agent in _list_below(granted, operators)} | own,
        problems=problems,
        hidden=sorted(key for key in files if key.casefold() in taken),
    )


def _list_below(agents: list[Definition], operators: Mapping[str, Definition]) -> list[Definition]:
    found: dict[str, Definition] = {}
    left = [*agents]
    while left:
        agent = left.pop()
        found[agent.key] = agent
        below = (operators.get(key.casefold()) for key in agent.subagents)
        left += [one for one in below if one is not None and one.key not in found]
    return [*found.values()]
