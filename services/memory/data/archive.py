"""A user's data in memory, as consecutive entries of an archive."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from headrace.errors import NotFound
from services.memory.data.holds import read_runs
from services.memory.log.lines import decode_line
from services.memory.storage.gates.query import GateQuery, GrantQuery
from services.memory.storage.paging import PAGE_MAX, Page, read_pages
from services.memory.storage.run_query import RunQuery
from services.memory.storage.spend import GROUPS, SpendQuery
from services.runtime.clock import now_ms

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine
    from services.memory.storage.index_rows import ChatEntry
    from services.runtime.auth.identity import Identity

DAY_MS = 24 * 60 * 60 * 1000

FIRST_DAY = 19_700
"""End of 2023, as days since 1970; spending records are later."""

DAYS_AT_ONCE = 30
"""Days of spending per query, so few that its result is never truncated."""

_SECRETS = frozenset(
    {"secrets", "token", "authSchemes", "authScheme", "authCredentials", "sha256", "revision", "version"}
)
"""Fields of records that are not personal data: secrets, and the store's internal numbers."""


@dataclass(frozen=True, slots=True)
class Entry:
    name: str
    data: bytes
    modified_at: int
    """Unix milliseconds."""


class UserArchive:
    """Reads one entry at a time, so that memory holds no more than the longest log."""

    def __init__(self, engine: Engine, owner: Identity) -> None:
        self._engine = engine
        self._owner = owner
        self._run_ids: set[str] = set()

    async def read_entries(self) -> AsyncGenerator[Entry]:
        list_chats = partial(self._engine.index.list_page, self._owner)
        async for entry in read_pages(list_chats, Page(PAGE_MAX)):
            async for read in self._read_chat(entry):
                yield read
        async for read in self._read_others_chats():
            yield read
        gates, owner = self._engine.gates, self._owner
        grants_read = read_pages(gates.list_grants, GrantQuery(owner.tenant, now_ms(), owner))
        gates_read = read_pages(gates.list_gates, GateQuery(owner.tenant, requester=owner.user))
        listed: dict[str, AsyncIterable[Any]] = {
            "facts": self._list_facts(),
            "grants": (asdict(grant) async for grant in grants_read),
            "gates": (asdict(gate) async for gate in gates_read),
            "run_webhooks": self._list_webhooks(),
            "spend": self._list_spend(),
        }
        for records in self._engine.records.kinds:
            if records.kind.plural:
                lines = [_encode_row(row) for row in await records.list_authored(self._owner)]
                yield Entry(f"{records.kind.plural}.jsonl", b"".join(lines), now_ms())
        for name, rows in listed.items():
            lines = [_encode_row(row) async for row in rows]
            yield Entry(f"{name}.jsonl", b"".join(lines), now_ms())

    async def _read_chat(self, entry: ChatEntry) -> AsyncGenerator[Entry]:
        try:
            chat = await self._engine.chats.load(entry.chat_id)
        except NotFound:  # it was deleted in the meantime
            return
        self._run_ids |= set(chat.info.runs)
        yield Entry(f"chats/{entry.chat_id}.json", await self._engine.chats.export(chat), entry.updated_at)
        for blob_id in await self._engine.blobs.list_ids(entry.chat_id):
            blob = await self._engine.blobs.load(entry.chat_id, blob_id)
            if blob is not None:
                yield Entry(f"chats/{entry.chat_id}/{blob_id}", blob.data, entry.updated_at)

    async def _read_others_chats(self) -> AsyncGenerator[Entry]:
        """Read the user's runs in other users' chats, without anyone else's."""
        by_chat: dict[str, set[str]] = {}
        query = RunQuery(self._owner.tenant, PAGE_MAX, user=self._owner.user)
        async for run in read_runs(self._engine, query):
            if run.chat_owner != self._owner.user:
                by_chat.setdefault(run.chat_id, set()).add(run.run_id)
        for chat_id, run_ids in by_chat.items():
            self._run_ids |= run_ids
            try:
                chat = await self._engine.chats.load(chat_id)
            except NotFound:
                continue
            log = await self._engine.chats.export(chat)
            yield Entry(
                f"others_chats/{chat_id}.json",
                await asyncio.to_thread(_select_runs, log, run_ids),
                chat.info.updated_at,
            )

    async def _list_facts(self) -> AsyncGenerator[Any]:
        for fact in await self._engine.records.facts.list_visible(self._owner):
            if fact.owner == self._owner and not fact.deleted_at:
                yield {key: value for key, value in msgspec.to_builtins(fact).items() if not key.startswith("vector")}

    async def _list_webhooks(self) -> AsyncGenerator[Any]:
        for webhook in await self._engine.records.webhooks.list_all():
            if webhook.tenant == self._owner.tenant and webhook.run_id in self._run_ids:
                yield webhook

    async def _list_spend(self) -> AsyncGenerator[Any]:
        today = now_ms() // DAY_MS
        wanted = {"user_name": self._owner.user}
        for first in range(FIRST_DAY, today + 1, DAYS_AT_ONCE):
            last = min(first + DAYS_AT_ONCE - 1, today)
            answer = await self._engine.spend.sum_spend(SpendQuery(self._owner.tenant, first, last, GROUPS, wanted))
            for group in answer.groups:
                yield group.columns | asdict(group.total)


def _select_runs(log: bytes, run_ids: set[str]) -> bytes:
    texts = log.splitlines(keepends=True)
    return b"".join(text for text in texts if (line := decode_line(text.rstrip(b"\n"))) and line.run_id in run_ids)


def _encode_row(row: Any) -> bytes:
    record: Mapping[str, Any] = row if isinstance(row, dict) else msgspec.to_builtins(row)
    return msgspec.json.encode({key: value for key, value in record.items() if key not in _SECRETS}) + b"\n"
