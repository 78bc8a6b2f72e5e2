"""The table of webhooks, in SQL that both engines take; their addresses and secrets are encrypted where others' are."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from msgspec.structs import replace

from services.memory.encryption.keyring import Keyring
from services.memory.storage.encrypted.records import decrypt_record, encrypt_record, is_current_record, read_record
from services.memory.storage.records.webhooks import RUN_WORD, Webhook, decode_webhook, encode_webhook, make_run_word

WEBHOOK = "webhook"
"""Kind of the record, which is a part of what it is encrypted for."""

Statement: TypeAlias = tuple[str, Sequence[Any]]
"""SQL with numbered marks ($1), and its values."""

Run: TypeAlias = Callable[..., Awaitable[list[list[Sequence[Any]]]]]
"""Runs statements in one transaction and returns the rows of each."""

IS_OF_RUN = f"substr(agents, 1, {len(RUN_WORD) + 1}) = ',{RUN_WORD}'"

_ROW = "SELECT webhook_id, data, is_full FROM webhooks"
_IN_ORDER = "ORDER BY created_at, webhook_id"

_OWN = f"{_ROW} WHERE tenant = $1 AND NOT {IS_OF_RUN} {_IN_ORDER}"
_OF_RUN = f"{_ROW} WHERE tenant = $1 AND agents = $2 {_IN_ORDER}"
_COUNT_OF_RUNS = f"SELECT count(*) FROM webhooks WHERE tenant = $1 AND {IS_OF_RUN}"
ALL = f"{_ROW} {_IN_ORDER}"
_FIND = f"{_ROW} WHERE webhook_id = $1"
_RUN_ID = f"substr(agents, {len(RUN_WORD) + 2}, length(agents) - {len(RUN_WORD) + 2})"
_LIST_IDS = f"""
SELECT webhook_id, CASE WHEN {IS_OF_RUN} THEN {_RUN_ID} ELSE '' END FROM webhooks WHERE tenant = $1 {_IN_ORDER}
"""
_IDS_OF_RUN = "SELECT webhook_id FROM webhooks WHERE tenant = $1 AND agents = $2"
_STORED = "SELECT webhook_id, tenant, data FROM webhooks ORDER BY webhook_id"
_REWRITE = "UPDATE webhooks SET data = $2 WHERE webhook_id = $1 AND data = $3 RETURNING 1"

_INSERT = """
INSERT INTO webhooks (webhook_id, tenant, version, types, agents, is_paused, matches_from, created_at, data, is_full)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 0) ON CONFLICT DO NOTHING RETURNING version
"""

_UPDATE = """
UPDATE webhooks SET version = $3, types = $4, agents = $5, is_paused = $6, matches_from = $7, data = $9
WHERE webhook_id = $1 AND tenant = $2 AND version = $10 AND created_at = $8 RETURNING version
"""

_FORGET_MISSED = """
DELETE FROM deliveries WHERE webhook_id = $1 AND state = 'scheduled' AND next_at <= $2
    AND EXISTS (SELECT 1 FROM webhooks AS w WHERE w.webhook_id = $1 AND w.is_paused = 1)
"""
"""What has come due while the webhook was paused."""


class WebhookTable:
    def __init__(self, run: Run, keys: Keyring) -> None:
        self._run = run
        self._keys = keys
        self._wake: Callable[[], None] = lambda: None

    def listen(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def wake(self) -> None:
        """Say that there is something new to be delivered."""
        self._wake()

    async def list_own(self, tenant: str) -> list[Webhook]:
        return await self.read(await self._fetch(_OWN, tenant))

    async def list_of_run(self, tenant: str, run_id: str) -> list[Webhook]:
        words = _join_words((make_run_word(run_id),))
        return await self.read(await self._fetch(_OF_RUN, tenant, words))

    async def count_of_runs(self, tenant: str) -> int:
        rows = await self._fetch(_COUNT_OF_RUNS, tenant)
        return rows[0][0] if rows else 0

    async def list_all(self) -> list[Webhook]:
        return await self.read(await self._keys.select_readable(await self._fetch(ALL), get_data))

    async def list_ids(self, tenant: str) -> list[tuple[str, str]]:
        return [(webhook_id, run_id) for webhook_id, run_id in await self._fetch(_LIST_IDS, tenant)]

    async def find(self, webhook_id: str) -> Webhook | None:
        return next(iter(await self.read(await self._fetch(_FIND, webhook_id))), None)

    async def rewrite(self, webhook_id: str, tenant: str, stored: bytes) -> bool:
        """Write what is stored of a webhook as it would be written now, if it is not so and nobody has changed it;
        return whether it was."""
        if is_current_record(stored, self._keys, tenant):
            return False
        await self._keys.prepare_newest(tenant)
        await self._keys.open_for([stored])
        plain = decrypt_record(WEBHOOK, webhook_id, stored, self._keys)
        data = encrypt_record(WEBHOOK, webhook_id, plain, self._keys, tenant)
        return bool(await self._fetch(_REWRITE, webhook_id, data, stored))

    async def list_stored(self) -> list[tuple[str, str, bytes]]:
        """List each webhook's id and tenant, and what is stored of it."""
        return [(webhook_id, tenant, data) for webhook_id, tenant, data in await self._fetch(_STORED)]

    async def put(self, webhook: Webhook, before: int = 0) -> bool:
        await self._keys.prepare(webhook.tenant)
        data = encrypt_record(WEBHOOK, webhook.webhook_id, encode_webhook(webhook), self._keys, webhook.tenant)
        values = (
            *(webhook.webhook_id, webhook.tenant, webhook.version),
            *(_join_words(webhook.types), _join_words(webhook.scope_words), int(webhook.paused)),
            *(webhook.matches_from, webhook.created_at, data),
        )
        missed = (_FORGET_MISSED, (webhook.webhook_id, webhook.updated_at))
        change = [missed, (_UPDATE, (*values, before))] if before else [(_INSERT, values)]
        *_, rows = await self._run(*change)
        self._wake()  # what has waited for the end of a pause is due
        return bool(rows)

    async def delete(self, webhook_id: str) -> None:
        await self._run(
            ("DELETE FROM webhooks WHERE webhook_id = $1", [webhook_id]),
            ("DELETE FROM deliveries WHERE webhook_id = $1", [webhook_id]),
        )

    async def delete_of_run(self, tenant: str, run_id: str) -> None:
        words = _join_words((make_run_word(run_id),))
        for (webhook_id,) in await self._fetch(_IDS_OF_RUN, tenant, words):
            await self.delete(webhook_id)

    async def read(self, rows: Sequence[Sequence[Any]]) -> list[Webhook]:
        await self._keys.open_for(map(get_data, rows))
        return [_read_webhook(row, self._keys) for row in rows]

    async def _fetch(self, statement: str, *values: Any) -> list[Sequence[Any]]:
        return (await self._run((statement, values)))[0]


def _join_words(words: Sequence[str]) -> str:
    return f",{','.join(words)}," if words else ""


def get_data(row: Sequence[Any]) -> bytes:
    return row[1]


def _read_webhook(row: Sequence[Any], keys: Keyring) -> Webhook:
    webhook_id, data, is_full = row
    return replace(decode_webhook(read_record(WEBHOOK, webhook_id, data, keys)), is_full=bool(is_full))
