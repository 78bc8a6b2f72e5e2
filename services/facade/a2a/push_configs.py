"""Push notification configs of tasks, stored as run webhooks in the memory service, which delivers the events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import grpc

from headrace.errors import NotFound
from headrace.v1 import webhook_pb2, webhook_pb2_grpc
from services.facade.a2a.protocol import BAD_PARAMS, A2aError
from services.facade.peer_calls import call_peer

OPERATIONS = frozenset(f"{verb}TaskPushNotificationConfig" for verb in ("Create", "Get", "Delete")) | {
    "ListTaskPushNotificationConfigs"
}


@dataclass(frozen=True, slots=True)
class PushConfig:
    id: str
    url: str
    token: str
    scheme: str
    credentials: str


def parse_push_config(given: Any, name: str = "") -> PushConfig:
    """Parse a TaskPushNotificationConfig from the request field `name`; A2aError names the field and the rule."""
    before = f"{name}." if name else ""
    if not isinstance(given, dict):
        raise A2aError(BAD_PARAMS, f"{name}: must be an object")
    authentication = given.get("authentication") or {}
    if not isinstance(authentication, dict):
        raise A2aError(BAD_PARAMS, f"{before}authentication: must be an object")
    read = {field: given.get(field) or "" for field in ("id", "url", "token")}
    read |= {field: authentication.get(field) or "" for field in ("scheme", "credentials")}
    for field, value in read.items():
        if not isinstance(value, str):
            raise A2aError(BAD_PARAMS, f"{before}{field}: must be a text")
    if not read["url"]:
        raise A2aError(BAD_PARAMS, f"{before}url: is required")
    return PushConfig(**read)


class PushConfigs:
    def __init__(self, memory: grpc.aio.Channel) -> None:
        # Any: the stubs' types know the RPCs of synchronous channels too.
        self._webhooks: Any = webhook_pb2_grpc.WebhookServiceStub(memory)

    async def check(self, config: PushConfig) -> None:
        """Raise the error that storing the config would raise, except for errors about its task."""
        await self._put("", config)

    async def put(self, task_id: str, config: PushConfig) -> dict[str, Any]:
        """Store a task's config, replacing one with the same id, and return it without its secrets."""
        return _describe((await self._put(task_id, config)).webhook)

    async def _put(self, task_id: str, config: PushConfig) -> webhook_pb2.PutRunWebhookResponse:
        request = webhook_pb2.PutRunWebhookRequest(
            run_id=task_id,
            config_id=config.id,
            url=config.url,
            token=config.token,
            auth_scheme=config.scheme,
            auth_credentials=config.credentials,
        )
        return await call_peer(self._webhooks.PutRunWebhook, request)

    async def get(self, task_id: str, config_id: Any) -> dict[str, Any]:
        found = next((one for one in await self._list(task_id) if one.config_id == config_id), None)
        if found is None:
            raise NotFound("the task has no push notification config with this id")
        return _describe(found)

    async def list_all(self, task_id: str) -> dict[str, Any]:
        return {"configs": [_describe(one) for one in await self._list(task_id)], "nextPageToken": ""}

    async def delete(self, task_id: str, config_id: Any) -> dict[str, Any]:
        """Delete a config; deleting a missing one succeeds."""
        if not isinstance(config_id, str) or not config_id:
            raise A2aError(BAD_PARAMS, "id: must be that of a config")
        request = webhook_pb2.DeleteRunWebhookRequest(run_id=task_id, config_id=config_id)
        await call_peer(self._webhooks.DeleteRunWebhook, request)
        return {}

    async def _list(self, task_id: str) -> list[webhook_pb2.RunWebhook]:
        request = webhook_pb2.ListRunWebhooksRequest(run_id=task_id)
        reply = await call_peer(self._webhooks.ListRunWebhooks, request)
        return list(reply.webhooks)


def _describe(webhook: webhook_pb2.RunWebhook) -> dict[str, Any]:
    config = {"id": webhook.config_id, "taskId": webhook.run_id, "url": webhook.url}
    return config | ({"authentication": {"scheme": webhook.auth_scheme}} if webhook.auth_scheme else {})
