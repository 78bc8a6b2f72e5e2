"""A chat's lines as last read by this process, updated before they are shown."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING

from services.memory.log.chat import Chat
from services.memory.log.recovery import read_chat
from services.memory.log.sealing import LineReader, find_link
from services.memory.storage.lru import LruCache
from services.memory.storage.postgres.connection.session import get_server

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.memory.encryption.keyring import Keyring
    from services.memory.log.lines import Known, Line
    from services.memory.storage.postgres.connection.session import Connection

_READ = """
SELECT chats.id, chats.version, lines.n, lines.data
FROM chats LEFT JOIN lines ON lines.chat = chats.id AND lines.n >
    CASE WHEN chats.id <> $2 THEN 0 WHEN chats.version = $4 THEN $3::bigint ELSE $3::bigint - 1 END
WHERE chats.chat_id = $1 ORDER BY lines.n
"""
"""A single statement, so that version and new lines are of the same moment. If the version has changed, the last known
line is read again, because it may have been resealed."""

_MAKE = """
INSERT INTO chats
    (chat_id, version, name, first_agent_key, last_agent_key, created_at, updated_at, tenant, user_name)
VALUES ($1, 0, '', '', '', 0, 0, '', '') ON CONFLICT DO NOTHING RETURNING id
"""

INLINE_BYTES_MAX = 64 * 1024
"""Maximum size of lines decoded on the event loop: some 1 ms."""


@dataclass(slots=True, eq=False)
class CachedChat:
    """A chat shared by all tasks; a second object of it would do no harm."""

    chat: Chat
    """The chat; a new object if it was deleted and created again."""
    row: int = 0
    """The chat's id in the database; 0 without a row."""
    version: int = 0
    server: datetime | None = None
    """The server it was read from, as identified by a connection."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def empty(cls, chat_id: str) -> CachedChat:
        return cls(Chat.empty(chat_id))

    async def read_new_lines(self, connection: Connection, keys: Keyring) -> None:
        """Read lines that others have committed. The lock must be held. Raises KeyUnavailable."""
        chat_id = self.chat.chat_id
        known, server = self.row if self.is_from_server(connection) else 0, get_server(connection)
        last_n = self.chat.info.last_n
        rows = await connection.fetch(_READ, chat_id, known, last_n, self.version)
        if not rows:
            self.chat, self.row, self.version = Chat.empty(chat_id), 0, 0
            self.server = server
            return
        row, version, *_ = rows[0]
        if row == known and rows[0][2] == last_n:
            await keys.open_for([rows[0][3]])
            self.chat.link = find_link(chat_id, rows[0][3], keys)
        data = [found[3] for found in rows if found[2] and (row != known or found[2] > last_n)]
        if row != known:
            # Those between are of the same keys, or wait for theirs in the thread.
            await keys.open_for([*data[:1], *data[-1:]])
            log = b"".join(line + b"\n" for line in data)
            self.chat = await asyncio.to_thread(read_chat, chat_id, log, keys)
        elif data:
            size_bytes = sum(map(len, data)) + len(data)
            await keys.open_for(data)
            is_short = size_bytes <= INLINE_BYTES_MAX
            reader = LineReader(chat_id, keys, self.chat.link, self.chat.info.owner.tenant)
            lines = _read_lines(reader, data) if is_short else await asyncio.to_thread(_read_lines, reader, data)
            reader.check()
            self.chat.append_committed(lines)
            self.chat.link = reader.link
            self.chat.size_bytes += size_bytes
        # A row is whole or absent: one that cannot be read is not what was written.
        last_n = self.chat.info.last_n
        self.chat.info.is_damaged |= len(self.chat.log) < last_n or last_n < (rows[-1][2] or 0)
        self.row, self.version, self.server = row, version, server

    def is_from_server(self, connection: Connection) -> bool:
        return self.server is not None and self.server == get_server(connection)

    async def lock_row(self, connection: Connection, keys: Keyring) -> None:
        """Lock the chat until the transaction ends, and read it; without a row nothing is locked."""
        await connection.execute("SELECT FROM chats WHERE chat_id = $1 FOR UPDATE", self.chat.chat_id)
        await self.read_new_lines(
            connection, keys
        )  # a separate statement, which sees commits made while the first one waited

    async def make_row(self, connection: Connection) -> bool:
        """Create a row of version 0, invisible until it has lines; return whether there was none. The new one is
        locked, and the chat is empty."""
        row = await connection.fetchval(_MAKE, self.chat.chat_id)
        if row is not None:
            self.chat, self.row, self.version = Chat.empty(self.chat.chat_id), row, 0
            self.server = get_server(connection)
        return row is not None

    async def delete_row(self, connection: Connection) -> None:
        await connection.execute("DELETE FROM chats WHERE id = $1", self.row)

    def commit_lines(self, lines: Sequence[Known], data: Sequence[bytes], link: bytes) -> None:
        self.chat.commit_lines(lines)
        self.chat.link = link
        self.chat.size_bytes += sum(map(len, data)) + len(data)
        self.version += 1


class ChatCache:
    """The chats that this process used last, on the event loop only."""

    def __init__(self, bytes_max: int) -> None:
        self._chats: LruCache[CachedChat] = LruCache(bytes_max)

    def use_chat(self, chat_id: str) -> CachedChat:
        cached = self._chats.find_chat(chat_id)
        if cached is None:
            cached = CachedChat.empty(chat_id)
            self.keep_chat(cached)
        return cached

    def keep_chat(self, cached: CachedChat) -> None:
        self._chats.put_chat(cached.chat.chat_id, cached, cached.chat.size_bytes)

    def drop_chat(self, chat_id: str) -> None:
        self._chats.drop_chat(chat_id)


def _read_lines(reader: LineReader, data: list[bytes]) -> list[Line]:
    return [line for text in data if (line := reader.read(text)) is not None and reader.is_proven]
