"""Tenants as labels of metrics."""

from __future__ import annotations

from services.runtime.auth import identity

TENANTS_MAX = 100
"""Tenants with a label of their own; later ones share one."""

OTHERS = "(others)"

_seen = {identity.DEFAULT.tenant, ""}


def label_tenant(tenant: str | None = None) -> str:
    if tenant is None:
        tenant = identity.current_tenant()
    if tenant not in _seen:
        if len(_seen) >= TENANTS_MAX:
            return OTHERS
        _seen.add(tenant)
    return tenant
