"""Webhooks of single runs, created by their users: A2A's push notifications."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeAlias

from headrace.errors import InvalidRequest, NotFound, Overloaded, QuotaExceeded
from services.memory.log.lines import Run
from services.memory.storage.event_rows import GATE_OPENED, RUN_ENDED, make_run_ended
from services.memory.storage.records.kind import make_version
from services.memory.storage.records.webhooks import Webhook
from services.memory.webhooks.store import check_url
from services.runtime.auth import identity
from services.runtime.clock import now_ms
from services.runtime.net.allow_list import AllowList
from services.runtime.net.targets import HTTPS_PORTS as PORTS
from services.runtime.randomness import new_uuid

if TYPE_CHECKING:
    from services.memory.chats.access import ChatAccess
    from services.memory.storage.engine import ChatLogs
    from services.memory.storage.event_rows import OutsideEvent
    from services.memory.storage.records.deliveries import Webhooks

FindEnd: TypeAlias = "Callable[[str], Awaitable[OutsideEvent | None]]"
"""Returns the event of a run's end, None while it is active; raises NotFound if the user has no such run."""

OF_RUN_MAX, OF_TENANT_MAX = 10, 1000
"""Maximum webhooks of a run, and of all runs of a tenant."""

COMMIT_S = 0.3
"""Maximum time for which an end being committed may miss a webhook just stored."""

_IDS = uuid.UUID("0a6c9d3e-3b7e-4b57-9d31-5a2f8e0f7c11")

_VISIBLE = re.compile(r"[\x21-\x7e]*")
_CREDENTIALS = re.compile(r"[\x20-\x7e]*")


class RunWebhookStore:
    def __init__(self, webhooks: Webhooks, find_end: FindEnd, allow: AllowList, ports: frozenset[int] = PORTS) -> None:
        """`allow` lists hosts outside the public web that may receive deliveries."""
        self._webhooks = webhooks
        self._find_end = find_end
        self._allow = allow
        self._ports = ports

    async def put(
        self, run_id: str, config_id: str, url: str, token: str, auth_scheme: str, auth_credentials: str
    ) -> Webhook | None:
        """Store the webhook and return it; without a run, only validate and return None.

        Raises:
            InvalidRequest: A field violates a rule.
            NotFound: The user has no such run.
            QuotaExceeded: There are too many webhooks.
            Overloaded: Others keep changing it.
        """
        host = check_url(url, self._allow, self._ports)
        _check_secrets(token, auth_scheme, auth_credentials)
        if not run_id:
            return None
        await self._find_end(run_id)
        tenant, now = identity.require_identity().tenant, now_ms()
        there = {webhook.config_id: webhook for webhook in await self._webhooks.list_of_run(tenant, run_id)}
        before = there.get(config_id)
        if before is None and (len(there) >= OF_RUN_MAX or await self._webhooks.count_of_runs(tenant) >= OF_TENANT_MAX):
            raise QuotaExceeded(f"a run may have {OF_RUN_MAX}, all runs of a tenant {OF_TENANT_MAX}; delete some")
        config_id = config_id or new_uuid()
        webhook = Webhook(
            webhook_id=str(uuid.uuid5(_IDS, f"{run_id}/{config_id}")),
            tenant=tenant,
            version=make_version(),
            url=url,
            secrets=(),
            types=(RUN_ENDED, GATE_OPENED),
            created_at=before.created_at if before else now,
            updated_at=now,
            name=host,
            run_id=run_id,
            config_id=config_id,
            token=token,
            auth_scheme=auth_scheme,
            auth_credentials=auth_credentials,
        )
        if not await self._webhooks.put(webhook, before.version if before else 0):
            raise Overloaded("the webhook is being changed by others; try again later")
        await self._tell_end(webhook)
        return webhook

    async def _tell_end(self, webhook: Webhook) -> None:
        """Deliver the end of a run that ended before the webhook was stored, or at the same time; never twice."""
        for wait_s in (0, COMMIT_S):
            await asyncio.sleep(wait_s)
            if (end := await self._find_end(webhook.run_id)) is not None:
                await self._webhooks.add_delivery(webhook.webhook_id, end)
                return

    async def list_of_run(self, run_id: str) -> list[Webhook]:
        await self._find_end(run_id)
        return await self._webhooks.list_of_run(identity.require_identity().tenant, run_id)

    async def delete(self, run_id: str, config_id: str) -> None:
        for webhook in await self.list_of_run(run_id):
            if webhook.config_id == config_id:
                await self._webhooks.delete(webhook.webhook_id)


def make_find_end(access: ChatAccess, chats: ChatLogs) -> FindEnd:
    async def find_end(run_id: str) -> OutsideEvent | None:
        chat_id = await access.find_chat_of_run(run_id) if await access.owns_run(run_id) else None
        if chat_id is None:
            raise NotFound(f"run {run_id} does not exist", runId=run_id)
        chat = await chats.load(chat_id)
        last = next((line for line in chat.log if isinstance(line, Run) and line.run_id == run_id), None)
        return None if last is None else make_run_ended(chat.info, chat.info.runs[run_id], last)

    return find_end


def _check_secrets(token: str, auth_scheme: str, auth_credentials: str) -> None:
    for name, value, form in (
        ("token", token, _VISIBLE),
        ("authScheme", auth_scheme, _VISIBLE),
        ("authCredentials", auth_credentials, _CREDENTIALS),
    ):
        if not form.fullmatch(value):
            raise InvalidRequest.of(name, "must have visible ASCII characters alone")
    if auth_credentials and not auth_scheme:
        raise InvalidRequest.of("authScheme", "must be there where authCredentials are")
