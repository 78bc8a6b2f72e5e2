"""Agents that tenants have stored, as memory tells of them: all of them, read again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import grpc
import structlog

from headrace.errors import HeadraceError
from headrace.v1 import memory_pb2
from services.orchestrator.agents.definition import Definition, DefinitionError, parse_agent

PAGES_MAX = 100_000
"""Pages of one look: more than all agents have."""

UNKNOWN_S = 30.0
"""Time between looks while memory does not know the question, in the middle of an upgrade."""

ReadChanges: TypeAlias = Callable[[int], Awaitable[memory_pb2.ReadAgentChangesResponse]]
"""Reads the agents that were changed behind a revision; raises HeadraceError or AioRpcError."""

NONE: Mapping[str, StoredAgent] = {}

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class StoredAgent:
    record: memory_pb2.AgentRecord
    agent: Definition | None
    """None where this release cannot read it."""
    problem: str = ""
    """Why it cannot."""


class StoredAgents:
    def __init__(self) -> None:
        self._by_tenant: dict[str, Mapping[str, StoredAgent]] = {}
        self._revision = 0
        self._is_complete = False
        """Whether every look since the one that read all agents has succeeded."""
        self._is_away = False
        self._looking = asyncio.Lock()

    def list_of(self, tenant: str) -> Mapping[str, StoredAgent]:
        """Return the tenant's agents by key in small letters; a change replaces the mapping."""
        return self._by_tenant.get(tenant, NONE)

    async def follow(self, read: ReadChanges, poll_s: float) -> None:
        """Look for changes every `poll_s` seconds, for ever."""
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
        """Read what has changed; raises what `read` raises."""
        async with self._looking:
            try:
                records = await self._read_records(read)
                found = await asyncio.to_thread(_parse_all, records) if records else []
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


def _parse_all(records: list[memory_pb2.AgentRecord]) -> list[StoredAgent]:
    return [_parse(record) for record in records]


def _parse(record: memory_pb2.AgentRecord) -> StoredAgent:
    if not record.definition:
        return StoredAgent(record, None)
    try:
        agent = parse_agent(record.definition.encode(), record.agent_key)
    except DefinitionError as error:
        return StoredAgent(record, None, str(error).partition("\n")[0])
    return StoredAgent(record, agent.take_tenant(record.tenant))
