"""Tenants' agents in a folder."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from services.memory.encryption.keyring import NO_KEYS
from services.memory.storage.files.records import NumberedFolder, RecordKind
from services.memory.storage.records.agents import (
    AGENT,
    AgentUse,
    StoredAgent,
    decode_agent,
    encode_agent,
    find_record_id,
)

if TYPE_CHECKING:
    from pathlib import Path

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.disk_room import DiskRoom


class AgentFolder(NumberedFolder[StoredAgent]):
    """An agent that cannot be read is not there."""

    def __init__(self, folder: Path, room: DiskRoom, keys: Keyring = NO_KEYS) -> None:
        kind = RecordKind(AGENT, lambda agent: agent.record_id, encode_agent, decode_agent, lambda agent: agent.tenant)
        super().__init__(folder, room, kind, keys)


class FileStoredAgents:
    def __init__(self, folder: AgentFolder, keys: Keyring = NO_KEYS) -> None:
        self._folder = folder
        self._keys = keys

    async def list_all(self) -> list[StoredAgent]:
        return self._folder.list_all()

    async def find(self, tenant: str, agent_key: str) -> StoredAgent | None:
        await self._keys.open_tenant(tenant)
        return self._folder.find(find_record_id(tenant, agent_key))

    async def put(self, agent: StoredAgent, before: int = 0) -> bool:
        await self._keys.prepare(agent.tenant)
        return await asyncio.to_thread(self._folder.put, agent, before)

    async def forget(self, before: int) -> None:
        for agent in self._folder.list_all():
            if not agent.definition and agent.updated_at < before:
                await asyncio.to_thread(self._folder.delete, agent.record_id)

    async def measure(self, tenant: str) -> AgentUse:
        there_are = [agent for agent in self._folder.list_all() if agent.definition]
        own = [len(agent.definition.encode()) for agent in there_are if agent.tenant == tenant]
        return AgentUse(len(own), sum(own), len(there_are))

    async def list_changes(self, after_revision: int, count: int) -> list[StoredAgent]:
        return self._folder.list_changes(after_revision, count)
