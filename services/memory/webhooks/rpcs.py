"""WebhookService: the RPCs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.errors import InvalidRequest
from headrace.v1 import webhook_pb2
from headrace.v1.webhook_pb2_grpc import WebhookServiceServicer
from services.memory.webhooks.store import KEEP_S_DEFAULT
from services.runtime.auth import identity
from services.runtime.clock import now_ms
from services.runtime.formats.same_fields import copy_fields

if TYPE_CHECKING:
    from services.memory.storage.audit import AuditTrail
    from services.memory.storage.records.webhooks import Delivery, Webhook
    from services.memory.webhooks.run_webhooks import RunWebhookStore
    from services.memory.webhooks.store import WebhookStore
    from services.runtime.rpc.interceptors import Context


class WebhookService(WebhookServiceServicer):
    def __init__(self, webhooks: WebhookStore, run_webhooks: RunWebhookStore, audit: AuditTrail) -> None:
        self._webhooks = webhooks
        self._run_webhooks = run_webhooks
        self._audit = audit

    async def CreateWebhook(
        self, request: webhook_pb2.CreateWebhookRequest, context: Context
    ) -> webhook_pb2.CreateWebhookResponse:
        webhook, secret = await self._webhooks.create(
            request.url,
            request.webhook_id,
            request.name,
            request.types,
            request.agent_keys,
            paused=request.paused,
        )
        if secret:
            await self._record("webhook.made", webhook.webhook_id)
        return webhook_pb2.CreateWebhookResponse(webhook=_make_message(webhook), secret=secret)

    async def ListWebhooks(
        self, request: webhook_pb2.ListWebhooksRequest, context: Context
    ) -> webhook_pb2.ListWebhooksResponse:
        return webhook_pb2.ListWebhooksResponse(webhooks=map(_make_message, await self._webhooks.list_own()))

    async def GetWebhook(
        self, request: webhook_pb2.GetWebhookRequest, context: Context
    ) -> webhook_pb2.GetWebhookResponse:
        return webhook_pb2.GetWebhookResponse(webhook=_make_message(await self._webhooks.get(request.webhook_id)))

    async def UpdateWebhook(
        self, request: webhook_pb2.UpdateWebhookRequest, context: Context
    ) -> webhook_pb2.UpdateWebhookResponse:
        given = {field.name: value for field, value in request.ListFields()}
        if given.pop("all_agents", False):
            if "agent_keys" in given:
                raise InvalidRequest.of("allAgents", "cannot be combined with agentKeys")
            given["agent_keys"] = ()
        webhook = await self._webhooks.update(given.pop("webhook_id"), given)
        await self._record("webhook.changed", webhook.webhook_id, changed=" ".join(sorted(given)))
        return webhook_pb2.UpdateWebhookResponse(webhook=_make_message(webhook))

    async def RotateSecret(
        self, request: webhook_pb2.RotateSecretRequest, context: Context
    ) -> webhook_pb2.RotateSecretResponse:
        keep_s = request.keep_s if request.HasField("keep_s") else KEEP_S_DEFAULT
        webhook, secret = await self._webhooks.rotate(request.webhook_id, keep_s)
        await self._record("webhook.secret_rotated", webhook.webhook_id, keepS=keep_s)
        return webhook_pb2.RotateSecretResponse(webhook=_make_message(webhook), secret=secret)

    async def DeleteWebhook(
        self, request: webhook_pb2.DeleteWebhookRequest, context: Context
    ) -> webhook_pb2.DeleteWebhookResponse:
        await self._webhooks.delete(request.webhook_id)
        await self._record("webhook.deleted", request.webhook_id)
        return webhook_pb2.DeleteWebhookResponse()

    async def PingWebhook(
        self, request: webhook_pb2.PingWebhookRequest, context: Context
    ) -> webhook_pb2.PingWebhookResponse:
        delivery = await self._webhooks.ping(request.webhook_id)
        await self._record("webhook.pinged", request.webhook_id)
        return webhook_pb2.PingWebhookResponse(delivery=_make_delivery(delivery))

    async def ListDeliveries(
        self, request: webhook_pb2.ListDeliveriesRequest, context: Context
    ) -> webhook_pb2.ListDeliveriesResponse:
        deliveries, token = await self._webhooks.list_deliveries(
            request.webhook_id, request.state, request.page_size, request.page_token
        )
        return webhook_pb2.ListDeliveriesResponse(deliveries=map(_make_delivery, deliveries), next_page_token=token)

    async def ReplayDeliveries(
        self, request: webhook_pb2.ReplayDeliveriesRequest, context: Context
    ) -> webhook_pb2.ReplayDeliveriesResponse:
        count = await self._webhooks.replay(request.webhook_id, request.event_ids)
        await self._record("webhook.replayed", request.webhook_id, count=count)
        return webhook_pb2.ReplayDeliveriesResponse(count=count)

    async def PutRunWebhook(
        self, request: webhook_pb2.PutRunWebhookRequest, context: Context
    ) -> webhook_pb2.PutRunWebhookResponse:
        webhook = await self._run_webhooks.put(
            request.run_id,
            request.config_id,
            request.url,
            request.token,
            request.auth_scheme,
            request.auth_credentials,
        )
        return webhook_pb2.PutRunWebhookResponse(webhook=None if webhook is None else _make_run_message(webhook))

    async def ListRunWebhooks(
        self, request: webhook_pb2.ListRunWebhooksRequest, context: Context
    ) -> webhook_pb2.ListRunWebhooksResponse:
        webhooks = await self._run_webhooks.list_of_run(request.run_id)
        return webhook_pb2.ListRunWebhooksResponse(webhooks=map(_make_run_message, webhooks))

    async def DeleteRunWebhook(
        self, request: webhook_pb2.DeleteRunWebhookRequest, context: Context
    ) -> webhook_pb2.DeleteRunWebhookResponse:
        await self._run_webhooks.delete(request.run_id, request.config_id)
        return webhook_pb2.DeleteRunWebhookResponse()

    async def _record(self, event: str, webhook_id: str, **details: str | int) -> None:
        await self._audit.record(event, identity.require_identity(), webhookId=webhook_id, **details)


def _make_message(webhook: Webhook) -> webhook_pb2.Webhook:
    old_ends_at = max((secret.ends_at for secret in webhook.secrets), default=0)
    return copy_fields(
        webhook,
        webhook_pb2.Webhook,
        full=webhook.is_full,
        old_secret_ends_at=old_ends_at if old_ends_at > now_ms() else None,
    )


def _make_run_message(webhook: Webhook) -> webhook_pb2.RunWebhook:
    return copy_fields(webhook, webhook_pb2.RunWebhook)


def _make_delivery(delivery: Delivery) -> webhook_pb2.Delivery:
    return copy_fields(delivery, webhook_pb2.Delivery, next_at=None if delivery.closed_at else delivery.next_at)
