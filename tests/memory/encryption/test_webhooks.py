"""Webhooks of a tenant whose key is lost: what they are told waits, they can be deleted, and others' are told."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from headrace.errors import KeyUnavailable
from services.memory.storage.event_rows import RUN_ENDED, make_event
from services.memory.webhooks.deliverer import delivering
from services.memory.webhooks.sender import Answer
from services.memory.webhooks.store import WebhookStore
from services.runtime.auth.identity import ALL_SCOPES, Identity, acting_as
from services.runtime.clock import now_ms
from services.runtime.net.allow_list import AllowList
from tests.support.memory.encrypted_stores import Store, WithoutTenant, opening
from tests.support.memory.engines import open_engine
from tests.support.memory.writing import new_id

if TYPE_CHECKING:
    from services.memory.storage.engine import Engine

ACME, BOLT = (Identity(tenant, "admin", scopes=ALL_SCOPES) for tenant in ("acme", "bolt"))


async def _create(engine: Engine, who: Identity) -> str:
    with acting_as(who):
        webhook, _ = await WebhookStore(engine.webhooks, AllowList()).create(f"https://{who.tenant}.example/")
        return webhook.webhook_id


async def test_a_lost_key_holds_up_its_own_tenants_webhooks_alone(store: Store) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()

    async def send(url: str, headers: dict[str, str], body: bytes) -> Answer:
        told.put_nowait(url)
        return Answer(200)

    async with open_engine(store.kept) as engine:
        webhook_id, _ = await _create(engine, ACME), await _create(engine, BOLT)
        for who in (ACME, BOLT):
            await engine.webhooks.add_event(make_event(who.tenant, RUN_ENDED, "1", new_id(), now_ms(), {}))
    lost = store.opened_with(opening(WithoutTenant("acme")))
    async with asyncio.timeout(60), open_engine(lost.kept) as engine, delivering(engine.webhooks, send, look_s=0.05):
        assert await told.get() == "https://bolt.example/"
        with acting_as(ACME), pytest.raises(KeyUnavailable, match="acme"):
            await WebhookStore(engine.webhooks, AllowList()).get(webhook_id)
        await engine.webhooks.add_event(make_event("bolt", RUN_ENDED, "2", new_id(), now_ms(), {}))
        assert await told.get() == "https://bolt.example/"
    async with asyncio.timeout(60), open_engine(store.kept) as engine, delivering(engine.webhooks, send, look_s=0.05):
        assert await told.get() == "https://acme.example/", "with the key there again it is told"
    async with open_engine(lost.kept) as engine:
        with acting_as(ACME):
            await WebhookStore(engine.webhooks, AllowList()).delete(webhook_id)
        assert await engine.webhooks.list_ids("acme") == []
