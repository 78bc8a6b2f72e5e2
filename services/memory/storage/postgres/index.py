"""The rows of chats, and the search of their texts.

A search reads the user's own texts, newest first, and finds words as parts of them in any script. Texts with more of
the words rank higher, then shorter ones.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import TYPE_CHECKING

from services.memory.encryption.keyring import NO_KEYS
from services.memory.log.chat import chat_not_found
from services.memory.storage.encrypted.rows import RowCipher
from services.memory.storage.encrypted.text_search import PAGE_TEXTS, TEXTS_MAX, EncryptedSearch, TextRow
from services.memory.storage.index_rows import UNCHANGED, ChatEntry, UnfinishedEntry
from services.memory.storage.leases import DUE_MAX
from services.memory.storage.postgres.connection.session import strip_nul
from services.memory.storage.search import Hit, Question, make_like_pattern
from services.memory.storage.where import Where
from services.runtime.auth.identity import Identity

if TYPE_CHECKING:
    from collections.abc import Callable

    from services.memory.encryption.keyring import Keyring
    from services.memory.storage.paging import Page
    from services.memory.storage.postgres.connection.pool import Database
    from services.memory.storage.run_query import RunEntry, RunQuery
    from services.memory.storage.sql import StoreState

_TITLE = "coalesce(nullif(title, ''), name)"
"""The title of a chat; services of version 7 still write chats without one."""

_COLUMNS = (
    f"chat_id, name, {_TITLE}, first_agent_key, last_agent_key, created_at, updated_at, false, tenant, user_name,"
    " shared_with, participants"
)

_CHAT = f"SELECT {_COLUMNS} FROM chats"

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

_OWN_TEXTS = """
SELECT count(*), min(id) FROM (
    SELECT id FROM texts WHERE tenant = $1 AND user_name = $2 AND id < $3 ORDER BY id DESC LIMIT $4) AS page
"""

_SEARCH = f"""
SELECT best.id, length(folded), coalesce(chat_id, ''), coalesce({_TITLE}, ''), run_id, text, long, short FROM (
    SELECT id, chat, run_id, text, folded, {{long}} AS long, CASE {{long}} WHEN 0 THEN {{short}} ELSE 0 END AS short
    FROM texts
    WHERE tenant = $1 AND user_name = $2 AND id < $3 AND id >= $4 AND kind = ANY($5) AND ({{any}})
    ORDER BY long DESC, short DESC, length(folded), id DESC LIMIT $6
) AS best LEFT JOIN chats ON chats.id = best.chat
"""

READ_TEXTS = 20_000
"""Maximum own texts that one statement of a search reads: some 50 ms at 400 characters each (2026-11)."""

READS_MAX = 10
"""Maximum statements of a search; texts of a user beyond those are too old to be found."""


_TEXTS = f"""
SELECT texts.id, coalesce(chat_id, ''), coalesce({_TITLE}, ''), run_id, kind, text
FROM texts LEFT JOIN chats ON chats.id = texts.chat
WHERE texts.id < $1 AND kind = ANY($2) AND texts.tenant = $3 AND texts.user_name = $4 {{which}}
ORDER BY texts.id DESC LIMIT $5
"""

N_MAX = 2**63 - 1


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
        row = await self._database.run(lambda connection: connection.fetchrow(f"{_CHAT} WHERE chat_id = $1", chat_id))
        if row is None:
            raise chat_not_found(chat_id)
        return ChatEntry(*row)

    async def _decrypt_entries(self, entries: list[ChatEntry]) -> list[ChatEntry]:
        await self._keys.open_for(entry.title for entry in entries)
        return self._rows.decrypt_entries(entries)

    async def list_page(self, owner: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        rows, token = await self.list_rows(owner, page)
        return await self._decrypt_entries(rows), token

    async def list_rows(self, owner: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        where = Where()
        where.add("tenant = {} AND user_name = {}", owner.tenant, owner.user)
        query = f"{_CHAT} WHERE {page.render(where)}"
        rows = await self._database.run(lambda connection: connection.fetch(query, *where.values))
        return page.split([ChatEntry(*row) for row in rows])

    async def list_shared(self, reader: Identity, page: Page) -> tuple[list[ChatEntry], str]:
        where, values = page.render_shared(reader, "user_name")
        rows = await self._database.run(lambda connection: connection.fetch(f"{_CHAT} {where}", *values))
        return page.split(await self._decrypt_entries([ChatEntry(*row) for row in rows]))

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

    async def list_runs(self, query: RunQuery) -> tuple[list[RunEntry], str]:
        statement, given = query.render("runs JOIN chats ON chats.id = runs.chat", "chats.chat_id", "chats.user_name")
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
        terms, short = question.split_by_length()
        query = _render_search(len(terms), len(short))
        patterns = [make_like_pattern(strip_nul(term).casefold()) for term in [*terms, *short]]
        best: list[tuple[tuple[float, int, int], Hit]] = []
        before = N_MAX
        for _ in range(READS_MAX if patterns else 0):
            page = (owner.tenant, owner.user, before)
            count, first = await self._database.run(
                lambda connection, page=page: connection.fetchrow(_OWN_TEXTS, *page, READ_TEXTS)
            )
            values = (*page, first, question.kinds, question.hits_max, *patterns)
            rows = await self._database.run(lambda connection, values=values: connection.fetch(query, *values))
            for place, length, chat_id, title, run_id, text, held, held_short in rows:
                # Matches of short words alone rank below, because many texts contain them.
                score = float(held or held_short / (1 + held_short))
                best.append(((-score, length, -place), Hit(chat_id, title, run_id, question.make_excerpt(text), score)))
            best = sorted(best, key=lambda hit: hit[0])[: question.hits_max]
            is_full = len(best) == question.hits_max and best[-1][0][0] == -len(terms or patterns)
            if count < READ_TEXTS or is_full:
                break
            before = first
        return [hit for _, hit in best]

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


@cache
def _render_search(terms: int, short: int) -> str:
    """Return the statement for this many terms of three characters or more, and shorter ones."""
    tests = [f"folded LIKE ${index}" for index in range(7, 7 + terms + short)]
    counts = [" + ".join(f"({test})::int" for test in part) or "0" for part in (tests[:terms], tests[terms:])]
    return _SEARCH.format(long=counts[0], short=counts[1], any=" OR ".join(tests))
