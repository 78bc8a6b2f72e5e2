"""The webhooks of the current tenant, under the rules of WebhookService."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from headrace.errors import InvalidRequest, NotFound, QuotaExceeded
from services.memory.storage.event_rows import BUDGET_WARNING, PING, TYPES, make_event
from services.memory.storage.paging import match_page, read_page
from services.memory.storage.records.kind import make_version
from services.memory.storage.records.webhooks import RUN_WORD, DeliveryQuery, Secret, Webhook
from services.memory.webhooks.forms import make_secret
from services.runtime.auth import identity
from services.runtime.clock import now_ms
from services.runtime.net.allow_list import AllowList
from services.runtime.net.targets import HTTPS_PORTS as PORTS
from services.runtime.net.targets import TargetRefused, parse_https_target
from services.runtime.randomness import new_uuid
from services.runtime.rpc.field_rules import is_uuid

if TYPE_CHECKING:
    from services.memory.storage.records.deliveries import Webhooks
    from services.memory.storage.records.webhooks import Delivery

WEBHOOKS_MAX = 20
"""Webhooks of a tenant."""

KEEP_S_DEFAULT, KEEP_S_MAX = 86_400, 604_800
"""How long a secret is used for signing along with its replacement."""

_AGENT_KEY = re.compile(rf"(?!{RUN_WORD})[^,\x00-\x1f]{{1,128}}")
"""No run's word in place of keys: the webhook would belong to a run, and be invisible to the tenant."""

_TOKEN = re.compile(r"([0-9]{1,15})\.([0-9a-f-]{36})\.([0-9a-f-]{36})")


class WebhookStore:
    def __init__(self, webhooks: Webhooks, allow: AllowList, ports: frozenset[int] = PORTS) -> None:
        """`allow` lists hosts outside the public web that may receive deliveries."""
        self._webhooks = webhooks
        self._allow = allow
        self._ports = ports

    async def create(
        self,
        url: str,
        webhook_id: str = "",
        name: str = "",
        types: Sequence[str] = (),
        agent_keys: Sequence[str] = (),
        *,
        paused: bool = False,
    ) -> tuple[Webhook, str]:
        """Return the webhook and its secret, which is empty if the webhook existed."""
        tenant, now = identity.require_identity().tenant, now_ms()
        host = check_url(url, self._allow, self._ports)
        secret = make_secret()
        webhook = Webhook(
            webhook_id=webhook_id or new_uuid(),
            tenant=tenant,
            version=make_version(),
            url=url,
            secrets=(Secret(secret),),
            types=_check_types(types) or TYPES,
            created_at=now,
            updated_at=now,
            name=name or host,
            agent_keys=_check_agents(agent_keys),
            paused=paused,
            matches_from=now,
        )
        if (stored := await self._webhooks.find(webhook.webhook_id)) is not None:
            return await self._webhooks.keep(_check_same(stored, webhook)), ""
        if len(await self._webhooks.list_own(tenant)) >= WEBHOOKS_MAX:
            raise _make_too_many()
        if await self._webhooks.put(webhook):
            # Others may have been made since. Whoever sees too many goes again, so that never more stay.
            if len(await self._webhooks.list_own(tenant)) > WEBHOOKS_MAX:
                await self._webhooks.delete(webhook.webhook_id)
                raise _make_too_many()
            return webhook, secret
        stored = self._webhooks.check_kept(await self._webhooks.find(webhook.webhook_id))
        # A statement with a lost response is repeated, and then finds its own webhook.
        is_own = stored.secrets == webhook.secrets
        return await self._webhooks.keep(_check_same(stored, webhook)), secret if is_own else ""

    async def list_own(self) -> list[Webhook]:
        return await self._webhooks.list_own(identity.require_identity().tenant)

    async def get(self, webhook_id: str) -> Webhook:
        """Return the tenant's webhook. Raises NotFound."""
        tenant = identity.require_identity().tenant
        webhook = await self._webhooks.find(webhook_id)
        if webhook is None or webhook.tenant != tenant or webhook.run_id:
            raise _not_found(webhook_id)
        return webhook

    async def update(self, webhook_id: str, changes: dict[str, Any]) -> Webhook:
        """Change fields by name."""
        if "url" in changes:
            check_url(changes["url"], self._allow, self._ports)
        if "types" in changes:
            changes |= {"types": _check_types(changes["types"])}
        if "agent_keys" in changes:
            changes |= {"agent_keys": _check_agents(changes["agent_keys"])}

        def change(webhook: Webhook) -> Webhook:
            changed = replace(webhook, **changes)
            if any(getattr(changed, name) != getattr(webhook, name) for name in ("types", "agent_keys", "paused")):
                changed = replace(changed, matches_from=now_ms())
            return changed

        return await self._change(await self.get(webhook_id), change)

    async def rotate(self, webhook_id: str, keep_s: int = KEEP_S_DEFAULT) -> tuple[Webhook, str]:
        """Return the webhook with a new secret, and the secret."""
        if not 0 <= keep_s <= KEEP_S_MAX:
            raise InvalidRequest.of("keepS", f"must be 0 to {KEEP_S_MAX}")
        secret = make_secret()

        def change(webhook: Webhook) -> Webhook:
            if webhook.secrets[0].text == secret:
                return webhook
            old = (replace(webhook.secrets[0], ends_at=now_ms() + keep_s * 1000),) if keep_s else ()
            return replace(webhook, secrets=(Secret(secret), *old))

        return await self._change(await self.get(webhook_id), change), secret

    async def delete(self, webhook_id: str) -> None:
        own = await self._webhooks.list_ids(identity.require_identity().tenant)
        if (webhook_id, "") not in own:
            raise _not_found(webhook_id)
        await self._webhooks.delete(webhook_id)

    async def ping(self, webhook_id: str) -> Delivery:
        webhook = await self.get(webhook_id)
        if webhook.is_full:
            raise QuotaExceeded("so many deliveries wait for this webhook that nothing is added; delete it, or wait")
        data = {"webhookId": webhook.webhook_id}
        event = make_event(webhook.tenant, PING, new_uuid(), webhook.webhook_id, now_ms(), data)
        delivery = await self._webhooks.add_delivery(webhook.webhook_id, event)
        if delivery is None:
            raise _not_found(webhook_id)
        return delivery

    async def list_deliveries(self, webhook_id: str, state: str, size: int, token: str) -> tuple[list[Delivery], str]:
        webhook = await self.get(webhook_id)
        size, match = match_page(size, token, _TOKEN)
        after = (int(match[1]), match[2], match[3]) if match else None
        query = DeliveryQuery(webhook.tenant, webhook_id, state, size, after)
        return await read_page(self._webhooks.list_deliveries, query)

    async def replay(self, webhook_id: str, event_ids: Collection[str]) -> int:
        webhook = await self.get(webhook_id)
        if not all(map(is_uuid, event_ids)):
            raise InvalidRequest.of("eventIds", "must be UUIDs in lower case")
        return await self._webhooks.replay(webhook.webhook_id, list(dict.fromkeys(event_ids)), now_ms())

    async def _change(self, webhook: Webhook, change: Callable[[Webhook], Webhook]) -> Webhook:
        def touch(stored: Webhook) -> Webhook:
            changed = change(stored)
            return stored if changed == stored else replace(changed, updated_at=now_ms())

        changed = await self._webhooks.change(webhook, touch)
        if changed is None:
            raise _not_found(webhook.webhook_id)
        return changed


async def warn_of_budget(
    webhooks: Webhooks,
    tenant: str,
    budget_id: str,
    period: str,
    share: float,
    data: dict[str, Any],
    agent_key: str = "",
) -> None:
    """Notify the tenant's webhooks that `share` (0 to 1) of a budget is spent in `period`, such as 2026-11.

    The spending rules call this. The same budget, period and share are one event, however often it is reported, by any
    replica. `data` is sent unchanged: limits, amounts, times and ids, without content. `agent_key` is the budget's
    agent; if empty, only webhooks for all agents receive it.
    """
    payload = {"budgetId": budget_id, "period": period, "share": share} | data
    key = f"{budget_id}/{period}/{share:g}"
    await webhooks.add_event(
        make_event(tenant, BUDGET_WARNING, key, f"budget/{budget_id}", now_ms(), payload, agent_key=agent_key)
    )


def check_url(url: str, allow: AllowList, ports: frozenset[int]) -> str:
    """Return the host of a webhook's URL. Raises InvalidRequest."""
    try:
        return parse_https_target(url, allow, ports, verb="delivered to").host
    except TargetRefused as error:
        raise InvalidRequest.of("url", str(error)) from None


def _check_types(types: Sequence[str]) -> tuple[str, ...]:
    if unknown := [name for name in types if name not in TYPES]:
        raise InvalidRequest.of("types", f"{unknown[0]!r} is no type of event; there are {', '.join(TYPES)}")
    return tuple(dict.fromkeys(types))


def _check_agents(agent_keys: Sequence[str]) -> tuple[str, ...]:
    if not all(map(_AGENT_KEY.fullmatch, agent_keys)):
        raise InvalidRequest.of("agentKeys", f"must be agents' keys: 1 to 128 characters, no commas, not {RUN_WORD}…")
    return tuple(dict.fromkeys(agent_keys))


def _check_same(stored: Webhook, webhook: Webhook) -> Webhook:
    """Return the stored webhook if the same request created it."""
    if stored.tenant != webhook.tenant:
        raise _not_found(webhook.webhook_id)
    if (webhook.url, webhook.types, webhook.agent_keys) != (stored.url, stored.types, stored.agent_keys):
        raise InvalidRequest.of("webhookId", "must be new, or that of the same webhook")
    return stored


def _make_too_many() -> QuotaExceeded:
    return QuotaExceeded(f"{WEBHOOKS_MAX} webhooks are there already; delete some", limit=str(WEBHOOKS_MAX))


def _not_found(webhook_id: str) -> NotFound:
    return NotFound(f"webhook {webhook_id} does not exist", webhookId=webhook_id)
