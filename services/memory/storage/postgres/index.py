"""The rows of chats, and the search of their texts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from services.memory.encryption.keyring import NO_KEYS
from services.memory.log.chat import chat_not_found
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.encrypted.text_search import PAGE_TEXTS, TEXTS_MAX, EncryptedSearch, TextRow
from services.memory.storage.index_rows import UNCHANGED, ChatEntry, UnfinishedEntry
from services.memory.storage.leases import DUE_MAX
from services.memory.storage.postgres.connection.session import strip_nul
from services.memory.storage.search import N_MAX, TITLE, Hit, Question, search_texts
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.paging import Page
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.run_query import RunEntry, RunQuery
    from services.memory.storage.sql import StoreState
    from services.memory.storage.where import Place

_COLUMNS = (
    f"chat_id, name, {TITLE}, first_agent_key, last_agent_key, created_at, updated_at, false, tenant, user_name,"
    " shared_with, participants"
)

_CHAT = f"SELECT {_COLUMNS} FROM chats WHERE chat_id = $1"

_UNFINISHED = """
SELECT chat_id, run_id, agent_key, greatest(generation, lease_generation), last_seq, owner, expires_at,
    of_tenant, of_user, user_name
FROM runs JOIN chats ON chats.id = runs.chat
"""

_LIST_OF_CHAT = f"""
{_UNFINISHED} WHERE NOT is_ended AND chat_id = $2 AND ($1::bigint IS NULL OR expires_at <= $1)
ORDER BY started_at, run_id
"""

_LIST = f"""
{_UNFINISHED} WHERE runs.run_id IN (
    SELECT run_id FROM runs WHERE NOT is_ended AND due_at = 0 AND ($1::bigint IS NULL OR expires_at <= $1)
    UNION ALL SELECT run_id FROM (
        SELECT run_id FROM runs WHERE NOT is_ended AND due_at > 0 AND due_at <= $2 ORDER BY due_at LIMIT {DUE_MAX}
    ) AS due)
ORDER BY started_at, run_id
"""
"""Skips parked runs that are not due."""

_UNCHANGED = UNCHANGED.format(columns=_COLUMNS, is_of_chat="runs.chat = chats.id")

_CHAT_OF_RUN = "SELECT chat_id FROM runs JOIN chats ON chats.id = runs.chat WHERE run_id = $1"

_USER_OF_RUN = "SELECT of_tenant, of_user FROM runs WHERE run_id = $1"

_TEXTS = f"""
SELECT texts.id, coalesce(chat_id, ''), coalesce({TITLE}, ''), run_id, kind, text
FROM texts LEFT JOIN chats ON chats.id = texts.chat
WHERE texts.id < $1 AND kind = ANY($2) AND texts.tenant = $3 AND texts.user_name = $4 {{which}}
ORDER BY texts.id DESC LIMIT $5
"""


class PostgresIndex:
    def __init__(
        self,
        database: Database,
        clock: Callable[[], int],
        keys: Keyring = NO_KEYS,
        get_state: Callable[[], StoreState | None] = lambda: None,
    ) -> None:
        self._database = database
        self._get_state = get_state
        self._keys, self._rows = keys, RowCipher(keys)
        self._clock = clock

    def get_progress(self) -> None:
        """Return None, complete: an append and its rows are one transaction."""

    async def wait_until_complete(self) -> None:
        pass

    async def find_entry(self, chat_id: str) -> ChatEntry:
        return (await self._decrypt_entries([await self.find_row(chat_id)]))[0]

    async def find_row(self, chat_id: str) -> ChatEntry:
        row = await self._database.run(lambda connection: connection.fetchrow(_CHAT, chat_id))
        if row is None:
            raise chat_not_found(chat_id)
        return ChatEntry(*row)

    async def _decrypt_entries(self, entries: list[ChatEntry]) -> list[ChatEntry]:
        await self._keys.open_for(entry.title for entry in entries)
        return self._rows.decrypt_entries(entries)

    async def list_page(
        self, who: Identity, page: Page, *, is_shared: bool = False
    ) -> tuple[list[ChatEntry], Place | None]:
        rows, after = await self.list_rows(who, page, is_shared=is_shared)
        return await self._decrypt_entries(rows), after

    async def list_rows(
        self, who: Identity, page: Page, *, is_shared: bool = False
    ) -> tuple[list[ChatEntry], Place | None]:
        query, values = page.render(_COLUMNS, who, "user_name", is_shared=is_shared)
        return page.split(await self._database.run(lambda connection: connection.fetch(query, *values)))

    async def find_chat_of_run(self, run_id: str) -> str | None:
        return await self._database.run(lambda connection: connection.fetchval(_CHAT_OF_RUN, run_id))

    async def find_run_user(self, run_id: str) -> Identity | None:
        row = await self._database.run(lambda connection: connection.fetchrow(_USER_OF_RUN, run_id))
        return Identity(*row) if row is not None else None

    async def list_unfinished(
        self, chat_id: str | None = None, *, without_owner: bool = False, may_lag: bool = False
    ) -> list[UnfinishedEntry]:
        now = self._clock()
        state = self._get_state() if may_lag and without_owner and chat_id is None else None
        if state is not None and state.next_run_at > now:
            return []
        expired_at = now if without_owner else None
        query, value = (_LIST, now) if chat_id is None else (_LIST_OF_CHAT, chat_id)
        rows = await self._database.run(lambda connection: connection.fetch(query, expired_at, value))
        return [UnfinishedEntry(*row) for row in rows]

    async def list_runs(self, query: RunQuery) -> tuple[list[RunEntry], Place | None]:
        statement, given = query.render(
            "JOIN chats ON chats.id = page.chat",
            "chat IN (SELECT id FROM chats WHERE chat_id IN ({}))",
            "chats.chat_id",
            "chats.user_name",
        )
        values = [strip_nul(value) for value in given]
        return query.split(await self._database.run(lambda connection: connection.fetch(statement, *values)))

    async def list_chats(self) -> list[str]:
        rows = await self._database.run(
            lambda connection: connection.fetch("SELECT chat_id FROM chats ORDER BY chat_id")
        )
        return [row[0] for row in rows]

    async def list_unchanged(self, updated_at: int, after: tuple[int, str] | None) -> list[ChatEntry]:
        values = (updated_at, *(after or (0, "")))
        rows = await self._database.run(lambda connection: connection.fetch(_UNCHANGED, *values))
        return [ChatEntry(*row) for row in rows]

    async def search(self, owner: Identity, question: Question) -> list[Hit]:
        if not self._keys.is_on:
            return await self._search_plain(owner, question)
        plain = [] if self._keys.encrypts else await self._search_plain(owner, question)
        return sorted(
            [*await self._search_encrypted(owner, question), *plain], key=lambda hit: hit.score, reverse=True
        )[: question.hits_max]

    async def _search_plain(self, owner: Identity, question: Question) -> list[Hit]:
        return await search_texts(self._fetch, owner, question, "chat", "ON chats.id = best.chat")

    async def _search_encrypted(self, owner: Identity, question: Question) -> list[Hit]:
        """Search the encrypted texts; with encryption on, also those not yet encrypted."""
        search, before = EncryptedSearch(question, self._rows), N_MAX
        which = "" if self._keys.encrypts else "AND folded = ''"
        for _ in range(TEXTS_MAX // PAGE_TEXTS):
            values = (before, question.kinds, owner.tenant, owner.user, PAGE_TEXTS)
            found = await self._database.run(
                lambda connection, values=values: connection.fetch(_TEXTS.format(which=which), *values)
            )
            rows = [TextRow(*row) for row in found]
            await self._keys.open_for(value for row in rows for value in (row.title, row.text))
            await asyncio.to_thread(search.add_rows, rows)
            if len(rows) < PAGE_TEXTS:
                break
            before = rows[-1].place
        return search.list_hits()

    async def _fetch(self, statement: str, values: list[Any]) -> list[Any]:
        return await self._database.run(lambda connection: connection.fetch(statement, *values))
