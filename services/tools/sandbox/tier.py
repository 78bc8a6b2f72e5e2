from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import Gauge

from services.runtime.net.allow_list import AllowList

Tier = Literal["bubblewrap", "process", "external", "none"]

_TIER = Gauge("headrace_sandbox_tier", "1 for the tier that commands run in; `refused`: none works.", ("tier",))


@dataclass(frozen=True, slots=True)
class Sandbox:
    tier: Tier | None
    """Tier in force; None: nothing works, and commands are refused."""

    problem: str = ""
    """Reason why a stronger tier, or for `external` the process tier inside, is not in force."""

    readable: tuple[str, ...] = ()

    writable: tuple[str, ...] = ()

    mark: str = "headrace"
    """Mark of the service on all that it starts (leftovers.py)."""

    allow_list: AllowList | None = None
    """Hosts that commands may reach; None: no network, as in tiers without network namespaces."""

    @property
    def is_confined(self) -> bool:
        return self.tier in ("process", "bubblewrap") or (self.tier == "external" and not self.problem)

    @property
    def has_namespaces(self) -> bool:
        return self.tier == "bubblewrap"

    def show_in_metrics(self) -> None:
        _TIER.labels(self.tier or "refused").set(1)
