"""How the providers do, as this replica has seen it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.v1 import llm_pb2
from services.llm_gateway.providers.provider_file import Quota
from services.runtime.auth.identity import require_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from services.llm_gateway.calls.refused_fields import RefusedFields
    from services.llm_gateway.limits.breaker import Breaker, Breakers
    from services.llm_gateway.limits.quota import Accounts
    from services.llm_gateway.providers.provider_file import Provider


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
