"""What a folder keeps, piece by piece, to be brought to how it would be written now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from headrace.errors import HeadraceError
from services.memory.storage.records.agents import SHARED

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.files.agents.versions import VersionFolder
    from services.memory.storage.files.blobs import BlobFolder
    from services.memory.storage.files.chats import FileChats
    from services.memory.storage.files.encryption.data_keys import FileDataKeys
    from services.memory.storage.files.indexing.index import Index
    from services.memory.storage.files.outbox import FileWebhooks
    from services.memory.storage.files.records import RecordFolder
    from services.memory.storage.files.user_facts import FactLog
    from services.memory.storage.records.agents import AgentVersion

Piece = tuple[str, Callable[[], Awaitable[bool]]]


class FileRewriting:
    def __init__(
        self,
        keys: Keyring,
        stored: FileDataKeys,
        chats: FileChats,
        index: Index,
        blobs: BlobFolder,
        facts: FactLog,
        versions: VersionFolder,
        records: Sequence[RecordFolder[Any]],
        webhooks: FileWebhooks,
    ) -> None:
        self.keys, self.stored = keys, stored
        self._chats, self._index, self._blobs = chats, index, blobs
        self._facts, self._versions, self._records, self._webhooks = facts, versions, records, webhooks

    async def list_pieces(self) -> AsyncIterator[Piece]:
        await self._index.wait_until_complete()
        for chat_id in await self._index.list_chats():
            yield f"chat {chat_id}", partial(self._rewrite_chat, chat_id)
        yield "webhooks", self._webhooks.rewrite_all
        yield "facts", partial(self._rewrite_facts)
        for version in self._versions.list_all():
            name = f"version {version.version} of agent {version.agent_key} of tenant {version.tenant}"
            yield name, partial(self._rewrite_version, version)
        for folder in self._records:
            for record_id in folder.list_ids():
                yield f"record {record_id}", partial(self._rewrite_record, folder, record_id)

    async def _rewrite_chat(self, chat_id: str) -> bool:
        tenant = (await self._chats.load(chat_id)).info.owner.tenant
        await self.keys.prepare_newest(tenant)
        has_changed = await self._chats.rewrite(chat_id)
        return await asyncio.to_thread(self._blobs.rewrite_blobs, chat_id, tenant) or has_changed

    async def _rewrite_facts(self) -> bool:
        unready: dict[str, HeadraceError] = {}
        for tenant in await asyncio.to_thread(self._facts.list_tenants):
            try:
                await self.keys.prepare_newest(tenant)
            except HeadraceError as error:  # its lines wait, and keep no other tenant's from being written
                unready[tenant] = error
        has_changed = await asyncio.to_thread(self._facts.rewrite, unready)
        for error in unready.values():
            raise error
        return has_changed

    async def _rewrite_version(self, version: AgentVersion) -> bool:
        if version.tenant != SHARED:
            await self.keys.prepare_newest(version.tenant)
        return await asyncio.to_thread(self._versions.rewrite, version)

    async def _rewrite_record(self, folder: RecordFolder[Any], record_id: str) -> bool:
        if tenant := folder.find_tenant(record_id):
            await self.keys.prepare_newest(tenant)
        return await asyncio.to_thread(folder.rewrite, record_id)
