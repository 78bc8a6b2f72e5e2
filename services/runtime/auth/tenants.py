"""Tenants as labels of metrics."""

from __future__ import annotations

from services.runtime.auth import identity

TENANTS_MAX = 100
"""Tenants with a label of their own in a process's metrics; later ones share one."""

OTHERS = "(others)"

_seen = {identity.DEFAULT.tenant, ""}
"""Tenants that have a label of their own; the empty one is a service on its own account."""


def label_tenant(tenant: str | None = None) -> str:
    """Return the label of a tenant, by default the current one."""
    if tenant is None:
        tenant = identity.current_tenant()
    if tenant not in _seen:
        if len(_seen) >= TENANTS_MAX:
            return OTHERS
        _seen.add(tenant)
    return tenant
