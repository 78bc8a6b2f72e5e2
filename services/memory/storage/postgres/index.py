"""What is known of chats without reading their lines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.memory.storage.index_rows import ChatEntry, UnfinishedEntry

if TYPE_CHECKING:
    from services.memory.storage.paging import Page
    from services.memory.storage.postgres.connection.session import Connection
    from services.runtime.auth.identity import Identity

_CHAT = (
    "SELECT chat_id, name, first_agent_key, last_agent_key, created_at, updated_at, false, tenant, user_name FROM chats"
)

_UNFINISHED = """
SELECT chat_id, run_id, agent_key, greatest(generation, lease_generation), last_seq, owner, expires_at,
    tenant, user_name
FROM runs JOIN chats ON chats.id = runs.chat
WHERE NOT is_ended AND ($1::text IS NULL OR chat_id = $1) AND ($2::bigint IS NULL OR expires_at <= $2)
ORDER BY started_at, run_id
"""

_UNCHANGED = """
SELECT chat_id FROM chats WHERE updated_at < $1
AND NOT EXISTS (SELECT FROM runs WHERE runs.chat = chats.id AND NOT is_ended) ORDER BY updated_at
"""


async def entry(chat_id: str, connection: Connection) -> ChatEntry | None:
    row = await connection.fetchrow(f"{_CHAT} WHERE chat_id = $1", chat_id)
    return ChatEntry(*row) if row else None


async def page(owner: Identity, asked: Page, connection: Connection) -> list[ChatEntry]:
    """One chat more than the page has, if there are more."""
    behind, after = ("AND (-updated_at, chat_id) > ($4, $5)", asked.after) if asked.after else ("", ())
    query = f"{_CHAT} WHERE tenant = $2 AND user_name = $3 {behind} ORDER BY -updated_at, chat_id LIMIT $1"
    rows = await connection.fetch(query, asked.size + 1, owner.tenant, owner.user, *after)
    return [ChatEntry(*row) for row in rows]


async def chat_of(run_id: str, connection: Connection) -> str | None:
    """The chat that a run belongs to."""
    query = "SELECT chat_id FROM runs JOIN chats ON chats.id = runs.chat WHERE run_id = $1"
    return await connection.fetchval(query, run_id)


async def unfinished(chat_id: str | None, expired_at: int | None, connection: Connection) -> list[UnfinishedEntry]:
    """Runs that have begun and not ended, the oldest first; of one chat, or those whose lease has ended."""
    return [UnfinishedEntry(*row) for row in await connection.fetch(_UNFINISHED, chat_id, expired_at)]


async def unchanged_since(updated_at: int, connection: Connection) -> list[str]:
    """Chats whose last line is older, and whose runs have all ended; the oldest first."""
    return [row[0] for row in await connection.fetch(_UNCHANGED, updated_at)]


async def every(connection: Connection) -> list[str]:
    return [row[0] for row in await connection.fetch("SELECT chat_id FROM chats ORDER BY chat_id")]
