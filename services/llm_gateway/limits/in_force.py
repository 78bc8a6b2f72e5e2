"""The limits in force at this replica, and what the caller's tenant has used of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headrace.v1 import limits_pb2
from services.llm_gateway.limits.quota import WAITING_MAX, WINDOW_S
from services.llm_gateway.providers.provider_file import Quota
from services.runtime.auth.identity import require_identity
from services.runtime.process.limits import find_opening_time, finish_limits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from services.llm_gateway.limits.breaker import Breaker, Breakers
    from services.llm_gateway.limits.quota import Account, Accounts
    from services.llm_gateway.providers.provider_file import Provider

FILE = "providers.json"


def list_limits(providers: Iterable[Provider], accounts: Accounts, breakers: Breakers) -> limits_pb2.ListLimitsResponse:
    tenant, found = require_identity().tenant, list[limits_pb2.Limit]()
    for provider in providers:
        found += _list_quotas(provider, accounts.get_account(provider), tenant)
        for model in provider.models:
            breaker = breakers.get_breaker(provider.key, model.name)
            found.append(_show_breaker(f"{provider.key}/{model.name}", breaker, tenant))
    return finish_limits("llm_gateway", found)


def _list_quotas(provider: Provider, account: Account, tenant: str) -> Iterator[limits_pb2.Limit]:
    """Show the account's limits, divided by the replicas; it is full when the next call of the tenant would wait."""
    use, quota, key = account.get_use(tenant), provider.quota or Quota(), provider.key
    opening = account.find_opening()
    said: dict[str, Any] = {
        "subject": key,
        "source": FILE,
        "per": "provider",
        "is_per_replica": True,
        "is_full": opening.is_full,
    }
    rates = (
        ("provider_requests", "requests", quota.requests_per_minute, use.requests),
        ("provider_tokens", "tokens", quota.tokens_per_minute, use.tokens),
    )
    opens_at = find_opening_time(opening.wait_s)
    for name, unit, limit, used in rates:
        if limit is not None:
            yield limits_pb2.Limit(
                **said,
                name=name,
                kind="rate",
                unit=unit,
                source_name=f"providers.{key}.quota.{unit}PerMinute",
                value=account.divide(limit),
                used=used,
                period_ms=round(WINDOW_S * 1000),
                opens_at=opens_at,
            )
    if quota.concurrency is not None:
        yield limits_pb2.Limit(
            **said,
            name="provider_calls",
            kind="concurrency",
            unit="calls",
            source_name=f"providers.{key}.quota.concurrency",
            value=account.divide(quota.concurrency),
            used=use.running,
            opens_at=opens_at,
        )
    if quota.concurrency or any(limit for _, _, limit, _ in rates):
        yield limits_pb2.Limit(
            name="provider_queue",
            subject=key,
            kind="queue",
            unit="calls",
            per="tenant",
            source="fixed",
            value=WAITING_MAX,
            used=len(use.waiters),
            is_per_replica=True,
        )


def _show_breaker(subject: str, breaker: Breaker, tenant: str) -> limits_pb2.Limit:
    blocked_s = breaker.measure_block_s(tenant)
    return limits_pb2.Limit(
        name="model_breaker",
        subject=subject,
        kind="breaker",
        unit="calls",
        per="tenant",
        source="fixed",
        is_full=blocked_s > 0,
        opens_at=find_opening_time(blocked_s),
        is_per_replica=True,
    )
