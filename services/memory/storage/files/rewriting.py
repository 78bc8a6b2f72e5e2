"""The chats of a folder with their blobs, to be written as they would be written now."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.encrypted.reencryption import Piece
    from services.memory.storage.files.blobs import BlobFolder
    from services.memory.storage.files.chats import FileChats
    from services.memory.storage.files.indexing.index import Index


@dataclass(frozen=True, slots=True)
class ChatRewriting:
    keys: Keyring
    chats: FileChats
    index: Index
    blobs: BlobFolder

    async def list_pieces(self) -> AsyncGenerator[Piece]:
        await self.index.wait_until_complete()
        for chat_id in await self.index.list_chats():
            yield f"chat {chat_id}", partial(self._rewrite, chat_id)

    async def _rewrite(self, chat_id: str) -> bool:
        tenant = (await self.chats.load(chat_id)).info.owner.tenant
        await self.keys.prepare_newest(tenant)
        has_changed = await self.chats.rewrite(chat_id)
        return await asyncio.to_thread(self.blobs.rewrite_blobs, chat_id, tenant) or has_changed
