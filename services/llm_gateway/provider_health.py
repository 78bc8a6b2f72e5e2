"""Health of the providers, as measured by this replica, and the limits in force there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from headrace.v1 import limits_pb2, llm_pb2
from services.llm_gateway.calls.refused_fields import RefusedFields
from services.llm_gateway.limits.breaker import Breaker, Breakers
from services.llm_gateway.limits.quota import WAITING_MAX, WINDOW_S, Account, Accounts
from services.llm_gateway.providers.provider_file import Provider, Quota
from services.runtime.auth.identity import require_identity
from services.runtime.process.limits import find_opening_time, finish_limits

FILE = "providers.json"


def list_providers(
    providers: Iterable[Provider], accounts: Accounts, breakers: Breakers, refused_fields: RefusedFields
) -> llm_pb2.ListProvidersResponse:
    tenant = require_identity().tenant
    return llm_pb2.ListProvidersResponse(
        providers=[_show_provider(provider, accounts, breakers, refused_fields, tenant) for provider in providers]
    )


def _show_provider(
    provider: Provider, accounts: Accounts, breakers: Breakers, refused_fields: RefusedFields, tenant: str
) -> llm_pb2.ProviderHealth:
    use, quota = accounts.get_account(provider).get_use(tenant), provider.quota or Quota()
    return llm_pb2.ProviderHealth(
        provider_key=provider.key,
        models=[
            _show_model(
                model.name,
                breakers.get_breaker(provider.key, model.name),
                refused_fields.list_fields(provider, model),
                tenant,
            )
            for model in provider.models
        ],
        running=use.running,
        waiting=len(use.waiters),
        minute_requests=use.requests,
        minute_tokens=use.tokens,
        requests_per_minute=quota.requests_per_minute,
        tokens_per_minute=quota.tokens_per_minute,
        concurrency=quota.concurrency,
        replicas=accounts.replicas,
    )


def _show_model(name: str, breaker: Breaker, left_out: Sequence[str], tenant: str) -> llm_pb2.ModelHealth:
    recent = breaker.summarise_recent(tenant)
    return llm_pb2.ModelHealth(
        model=name,
        breaker=breaker.state,
        blocked_ms=round(breaker.measure_block_s(tenant) * 1000),
        attempts=recent.own,
        error_ratio=recent.error_ratio,
        first_delta_ms=_to_ms(recent.first_delta_s),
        first_delta_ms_p95=_to_ms(recent.first_delta_s_p95),
        left_out=left_out,
    )


def _to_ms(time_s: float | None) -> int | None:
    return None if time_s is None else round(time_s * 1000)


def list_limits(providers: Iterable[Provider], accounts: Accounts, breakers: Breakers) -> limits_pb2.ListLimitsResponse:
    tenant, found = require_identity().tenant, list[limits_pb2.Limit]()
    for provider in providers:
        found += _list_quotas(provider, accounts.get_account(provider), tenant)
        for model in provider.models:
            breaker = breakers.get_breaker(provider.key, model.name)
            found.append(_show_breaker(f"{provider.key}/{model.name}", breaker, tenant))
    return finish_limits("llm_gateway", found)


def _list_quotas(provider: Provider, account: Account, tenant: str) -> Iterator[limits_pb2.Limit]:
    """List the account's limits, divided by the replicas; one is full if the tenant's next call would wait."""
    use, quota, key = account.get_use(tenant), provider.quota or Quota(), provider.key
    opening = account.find_opening()
    shared: dict[str, Any] = {
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
                **shared,
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
            **shared,
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
        breaker=breaker.state,
        unit="calls",
        per="tenant",
        source="fixed",
        is_full=blocked_s > 0,
        opens_at=find_opening_time(blocked_s),
        is_per_replica=True,
    )
