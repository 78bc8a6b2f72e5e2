"""Erasing in a folder of logs, including the files next to them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.errors import NotFound
from services.memory.encryption.envelope import find_key_id
from services.memory.encryption.keyring import is_of_tenant
from services.memory.storage.files.disk import disk_errors

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.engine import IsHeld
    from services.memory.storage.files.chats import FileChats
    from services.memory.storage.files.disk import Disk
    from services.memory.storage.files.indexing.database import IndexDatabase
    from services.memory.storage.files.indexing.index import Index
    from services.memory.storage.files.indexing.spend import SpendLedger


@dataclass(frozen=True, slots=True)
class FileEraser:
    chats: FileChats
    index: Index
    ledger: SpendLedger
    disk: Disk
    keys: Keyring
    scrub_records: Callable[[], Awaitable[None]]
    settles_s: float = 0.0
    receipt_after_s: float = 0.0

    async def list_users(self, tenant: str) -> set[str]:
        return set(await self.index.query_file(lambda database: database.list_users(tenant)))

    async def rewrite_chat(self, chat_id: str, redact: Callable[[bytes], bytes]) -> None:
        await self.chats.redact(chat_id, redact)

    async def list_unreadable_chats(self, tenant: str) -> list[str]:
        return await self._list_unread_logs(tenant) if self.keys.is_on else []

    async def delete_unreadable_chat(self, chat_id: str) -> None:
        await self.chats.delete_unindexed(chat_id)

    async def _list_unread_logs(self, tenant: str) -> list[str]:
        """List logs that could not be indexed."""
        with disk_errors("the folder of chats"):
            logs = await asyncio.to_thread(self.disk.list_logs)
        known = await self.index.query_file(lambda database: database.list_logs())
        found: list[str] = []
        for chat_id in logs.keys() - known.keys():
            with disk_errors(chat_id):
                key_id = find_key_id(await asyncio.to_thread(self.disk.read_head, chat_id))
            if key_id is not None and is_of_tenant(key_id, tenant) and not self.keys.can_open(key_id):
                found.append(chat_id)
        return sorted(found)

    async def rename_spender(self, tenant: str, user: str, name: str) -> int:
        def rename(row: dict[str, Any]) -> dict[str, Any]:
            is_theirs = (row["tenant"], row["user"]) == (tenant, user)
            return row | {"user": name, "credential": ""} if is_theirs else row

        await self._change_ledger(rename)
        return await self._change_index(lambda database: database.rename_spender(tenant, user, name))

    async def delete_spend(self, tenant: str) -> int:
        await self._change_ledger(lambda row: None if row["tenant"] == tenant else row)
        return await self._change_index(lambda database: database.spend.delete_retired(tenant))

    async def scrub(self, tenant: str, is_held: IsHeld) -> None:
        with disk_errors("ends that a crash has cut"):
            for chat_id in await asyncio.to_thread(self.disk.list_set_aside):
                if await self._is_nobodys(chat_id, tenant, is_held):
                    await asyncio.to_thread(self.disk.delete_set_aside, chat_id)
        await self.index.change_file(lambda database: database.scrub())
        await self.scrub_records()
        with disk_errors("what was erased"):
            await asyncio.to_thread(self.disk.sync_all)  # or a power cut would bring names back, as of blobs

    async def _is_nobodys(self, chat_id: str, tenant: str, is_held: IsHeld) -> bool:
        """Return whether a log's separate end may be deleted; any participant of the chat may have written it."""
        try:
            row = await self.index.find_row(chat_id)
        except NotFound:
            # Its log is gone, or has no line, as a crash cut the first ones. With one of a lost key its end goes.
            return not await asyncio.to_thread(self.disk.read_head, chat_id)
        return row.tenant == tenant and not is_held(row.owner.user, chat_id)

    async def _change_ledger(self, change: Callable[[dict[str, Any]], dict[str, Any] | None]) -> None:
        # Along with the index, which is built from it: first the file that a start would read.
        with disk_errors("what deleted chats have cost"):
            await asyncio.to_thread(self.ledger.rewrite, change)

    async def _change_index(self, change: Callable[[IndexDatabase], int]) -> int:
        changed: list[int] = []
        await self.index.change_file(lambda database: changed.append(change(database)))
        return changed[0]
