"""Tenants as labels of metrics."""

from __future__ import annotations

from services.runtime.auth import identity

TENANTS_MAX = 100
"""With names of their own in a process's metrics: each has a series for each model. Those that come later share one."""

OTHERS = "(others)"

_seen = {identity.DEFAULT.tenant, ""}
"""Tenants that have a label of their own; the empty one is for services on their own account."""


def label_tenant(tenant: str | None = None) -> str:
    """The tenant, the current one if none is named, or that of many."""
    if tenant is None:
        tenant = identity.current_tenant()
    if tenant not in _seen:
        if len(_seen) >= TENANTS_MAX:
            return OTHERS
        _seen.add(tenant)
    return tenant
