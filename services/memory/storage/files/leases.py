from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.storage.leases import Lease, check_can_own

if TYPE_CHECKING:
    from services.memory.storage.files.chats import FileChats
    from services.memory.storage.files.commits import Commits
    from services.memory.storage.files.tables.leases import LeaseTable


class FileLeases:
    def __init__(self, chats: FileChats, commits: Commits, table: LeaseTable) -> None:
        self._chats = chats
        self._commits = commits
        self._table = table
        self.create_first = table.create_first
        self.renew = table.renew
        self.release = table.release

    async def acquire(self, chat_id: str, run_id: str, owner: str, ttl_ms: int) -> Lease:
        run = check_can_own((await self._chats.load(chat_id)).info.runs.get(run_id), chat_id, run_id)
        lease = await self._table.acquire(run_id, run.generation, owner, ttl_ms)
        # What the former owner asked for before is committed first; whatever comes later is refused.
        await self._commits.settle()
        return lease
