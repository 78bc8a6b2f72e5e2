"""The client's calls about webhooks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from headrace.sync.calls.unary import UnaryCalls
from headrace.v1 import webhook_pb2


class WebhookCalls(UnaryCalls):
    _webhooks: Any

    def create_webhook(self, url: str, **fields: Any) -> webhook_pb2.CreateWebhookResponse:
        """Make a webhook, and return it with its secret, which is shown this once.

        `fields` are those of CreateWebhookRequest: webhook_id, name, types, agent_keys, paused.
        """
        request = webhook_pb2.CreateWebhookRequest(url=url, **fields)
        return self._send(self._webhooks.CreateWebhook, request)

    def webhooks(self) -> list[webhook_pb2.Webhook]:
        """Return the tenant's webhooks, the oldest first."""
        request = webhook_pb2.ListWebhooksRequest()
        reply: webhook_pb2.ListWebhooksResponse = self._send(self._webhooks.ListWebhooks, request)
        return list(reply.webhooks)

    def webhook(self, webhook_id: str) -> webhook_pb2.Webhook:
        request = webhook_pb2.GetWebhookRequest(webhook_id=webhook_id)
        reply: webhook_pb2.GetWebhookResponse = self._send(self._webhooks.GetWebhook, request)
        return reply.webhook

    def update_webhook(self, webhook_id: str, **fields: Any) -> webhook_pb2.Webhook:
        """Change fields of UpdateWebhookRequest; others stay as they are."""
        request = webhook_pb2.UpdateWebhookRequest(webhook_id=webhook_id, **fields)
        reply: webhook_pb2.UpdateWebhookResponse = self._send(self._webhooks.UpdateWebhook, request)
        return reply.webhook

    def rotate_webhook_secret(self, webhook_id: str, keep_s: int | None = None) -> str:
        """Return a new secret; the one before signs beside it for `keep_s` seconds (None: a day)."""
        request = webhook_pb2.RotateSecretRequest(webhook_id=webhook_id, keep_s=keep_s)
        reply: webhook_pb2.RotateSecretResponse = self._send(self._webhooks.RotateSecret, request)
        return reply.secret

    def delete_webhook(self, webhook_id: str) -> None:
        self._send(self._webhooks.DeleteWebhook, webhook_pb2.DeleteWebhookRequest(webhook_id=webhook_id))

    def ping_webhook(self, webhook_id: str) -> webhook_pb2.Delivery:
        """Return an event on its way; `deliveries` tells what becomes of it."""
        request = webhook_pb2.PingWebhookRequest(webhook_id=webhook_id)
        reply: webhook_pb2.PingWebhookResponse = self._send(self._webhooks.PingWebhook, request)
        return reply.delivery

    def deliveries(
        self, webhook_id: str, state: str = "", page_size: int = 0, page_token: str = ""
    ) -> webhook_pb2.ListDeliveriesResponse:
        """Return a page of deliveries, the newest event first; `state` is waiting, delivered or dead."""
        request = webhook_pb2.ListDeliveriesRequest(
            webhook_id=webhook_id, state=state, page_size=page_size, page_token=page_token
        )
        return self._send(self._webhooks.ListDeliveries, request)

    def replay_deliveries(self, webhook_id: str, event_ids: Iterable[str] = ()) -> int:
        """Deliver events again, without ids all dead letters; return how many."""
        request = webhook_pb2.ReplayDeliveriesRequest(webhook_id=webhook_id, event_ids=event_ids)
        reply: webhook_pb2.ReplayDeliveriesResponse = self._send(self._webhooks.ReplayDeliveries, request)
        return reply.count
