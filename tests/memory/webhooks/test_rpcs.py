"""WebhookService on both engines: permissions, secrets that are shown once, limits and changes."""

from typing import Any

import pytest

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from services.memory.storage.event_rows import TYPES
from services.memory.webhooks import store
from services.runtime.auth.identity import acting_as
from tests.support.memory.webhooks import ADA, EVE, URL
from tests.support.memory.writing import Memory, new_id, read_pages

pytestmark = pytest.mark.engines


async def test_a_webhook_is_created_listed_changed_and_deleted(memory: Memory) -> None:
    with acting_as(ADA):
        created = await memory.call("CreateWebhook", url=URL, agent_keys=["guide"])
        webhook = created.webhook
        assert created.secret.startswith("whsec_")
        assert (webhook.name, list(webhook.types), list(webhook.agent_keys)) == ("hooks.example", [*TYPES], ["guide"])
        assert (await memory.call("GetWebhook", webhook_id=webhook.webhook_id)).webhook == webhook
        assert created.secret not in str(await memory.call("ListWebhooks"))
        again = await memory.call("CreateWebhook", webhook_id=webhook.webhook_id, url=URL, agent_keys=["guide"])
        assert (again.webhook, again.secret) == (webhook, "")
        with pytest.raises(InvalidRequest, match="webhookId"):
            await memory.call("CreateWebhook", webhook_id=webhook.webhook_id, url=URL + "/other")
        changes: dict[str, Any] = {"types": ["headrace.gate.opened"], "all_agents": True, "paused": True, "name": "Ops"}
        changed = (await memory.call("UpdateWebhook", webhook_id=webhook.webhook_id, **changes)).webhook
        assert (changed.name, list(changed.types), list(changed.agent_keys), changed.paused, changed.url) == (
            "Ops",
            ["headrace.gate.opened"],
            [],
            True,
            URL,
        )
        assert not (await memory.call_as(EVE, "ListWebhooks")).webhooks
        rotated = await memory.call("RotateSecret", webhook_id=webhook.webhook_id)
        assert rotated.secret not in ("", created.secret)
        assert rotated.webhook.old_secret_ends_at > rotated.webhook.updated_at
        await memory.call("DeleteWebhook", webhook_id=webhook.webhook_id)
        assert not (await memory.call("ListWebhooks")).webhooks
        with pytest.raises(NotFound):
            await memory.call("GetWebhook", webhook_id=webhook.webhook_id)


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"url": "http://hooks.example/"}, "url"),
        ({"url": "https://127.0.0.1/"}, "url"),
        ({"url": "nonsense"}, "url"),
        ({"url": URL, "types": ["run.ended"]}, "types"),
        ({"url": URL, "agent_keys": ["a,b"]}, "agentKeys"),
        ({"url": URL, "agent_keys": [""]}, "agentKeys"),
        ({"url": URL, "agent_keys": ["run:0"]}, "agentKeys"),
        ({"url": ""}, "url"),
    ],
)
async def test_an_invalid_field_is_named(memory: Memory, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidRequest, match=field):
        await memory.call("CreateWebhook", **fields)
    webhook = (await memory.call("CreateWebhook", url=URL)).webhook
    if any(fields.values()) and fields["url"]:
        with pytest.raises(InvalidRequest, match=field):
            await memory.call("UpdateWebhook", webhook_id=webhook.webhook_id, **fields)


async def test_the_number_of_a_tenants_webhooks_is_bounded(memory: Memory) -> None:
    for _ in range(store.WEBHOOKS_MAX):
        await memory.call("CreateWebhook", url=URL)
    with pytest.raises(QuotaExceeded):
        await memory.call("CreateWebhook", url=URL)
    await memory.call_as(ADA, "CreateWebhook", url=URL)


async def test_deliveries_are_listed_page_by_page(memory: Memory) -> None:
    webhook_id = (await memory.call("CreateWebhook", url=URL)).webhook.webhook_id
    for _ in range(3):
        await memory.begin_and_end()
    await memory.chats()  # waits for pending writes, which make deliveries
    await memory.call("PingWebhook", webhook_id=webhook_id)
    pages = await read_pages(memory, "ListDeliveries", "deliveries", 2, webhook_id=webhook_id)
    types = [[delivery.type for delivery in page] for page in pages]
    assert types == [["headrace.ping", "headrace.run.ended"], ["headrace.run.ended"] * 2]
    waiting = await memory.call("ListDeliveries", webhook_id=webhook_id, state="waiting")
    assert len(waiting.deliveries) == 4
    assert waiting.deliveries[0].next_at
    assert not (await memory.call("ListDeliveries", webhook_id=webhook_id, state="dead")).deliveries
    assert (await memory.call("ReplayDeliveries", webhook_id=webhook_id)).count == 0
    for wrong in ({"page_size": 201}, {"page_token": "x"}, {"state": "scheduled"}):
        with pytest.raises(InvalidRequest):
            await memory.call("ListDeliveries", webhook_id=webhook_id, **wrong)
    with pytest.raises(InvalidRequest, match="eventIds"):
        await memory.call("ReplayDeliveries", webhook_id=webhook_id, event_ids=["x"])
    with pytest.raises(InvalidRequest, match="keepS"):
        await memory.call("RotateSecret", webhook_id=webhook_id, keep_s=-1)
    with pytest.raises(NotFound):
        await memory.call("PingWebhook", webhook_id=new_id())
