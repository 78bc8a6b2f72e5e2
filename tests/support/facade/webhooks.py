"""Webhooks of a scripted memory: the real RPCs and rules over a dict. What is sent is delivered at once."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from services.memory.storage.outbox import EVENT_FIELDS, list_values
from services.memory.storage.records.webhooks import DELIVERED, Delivery, DeliveryQuery, Webhook
from services.memory.webhooks.run_webhooks import RunWebhookStore
from services.memory.webhooks.store import WebhookStore
from services.runtime.net.allow_list import AllowList

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.memory.storage.event_rows import OutsideEvent


class ListedWebhooks:
    def __init__(self) -> None:
        self._webhooks: dict[str, Webhook] = {}
        self._deliveries: list[Delivery] = []

    async def list_own(self, tenant: str) -> list[Webhook]:
        return [*self._webhooks.values()]

    async def list_ids(self, tenant: str) -> list[tuple[str, str]]:
        return [(webhook.webhook_id, webhook.run_id) for webhook in self._webhooks.values()]

    async def list_of_run(self, tenant: str, run_id: str) -> list[Webhook]:
        return [webhook for webhook in self._webhooks.values() if webhook.run_id == run_id]

    async def count_of_runs(self, tenant: str) -> int:
        return sum(bool(webhook.run_id) for webhook in self._webhooks.values())

    async def find(self, webhook_id: str) -> Webhook | None:
        return self._webhooks.get(webhook_id)

    async def put(self, webhook: Webhook, before: int = 0) -> bool:
        self._webhooks[webhook.webhook_id] = webhook
        return True

    async def delete(self, webhook_id: str) -> None:
        self._webhooks.pop(webhook_id, None)

    async def add_delivery(self, webhook_id: str, event: OutsideEvent) -> Delivery | None:
        given: dict[str, Any] = dict(zip(EVENT_FIELDS, list_values(event), strict=True))
        sent = Delivery(webhook_id=webhook_id, tries=0, **given)
        done = replace(sent, state=DELIVERED, tries=1, closed_at=event.occurred_at + 5, status=204)
        self._deliveries.insert(0, done)
        return sent

    async def list_deliveries(self, query: DeliveryQuery) -> list[Delivery]:
        return [delivery for delivery in self._deliveries if query.state in ("", delivery.state)]

    async def replay(self, webhook_id: str, event_ids: Sequence[str], now: int) -> int:
        return sum(delivery.event_id in event_ids for delivery in self._deliveries)


def make_run_webhook_store() -> RunWebhookStore:
    """The webhooks of runs that go on and are everybody's."""
    listed: Any = ListedWebhooks()

    async def find_end(run_id: str) -> OutsideEvent | None:
        return None

    return RunWebhookStore(listed, find_end, AllowList())


def make_webhook_store() -> WebhookStore:
    listed: Any = ListedWebhooks()  # nobody delivers here
    return WebhookStore(listed, AllowList())
