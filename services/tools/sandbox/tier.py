"""The sandbox as found: which tier commands run in, and what the operator opens to all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from prometheus_client import Gauge

from services.tools.net.allow_list import AllowList

Tier = Literal["bubblewrap", "process", "external", "none"]

_TIER = Gauge("headrace_sandbox_tier", "1 for the tier that commands run in; `refused`: none works.", ("tier",))


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What commands run in here."""

    tier: Tier | None
    """None: nothing works, and commands are refused."""

    problem: str = ""
    """Why a stronger tier is not in force; for `external` why the process tier is not inside it. Empty: all works."""

    readable: tuple[str, ...] = ()
    """Paths that the operator lets all commands read."""

    writable: tuple[str, ...] = ()

    allow: AllowList | None = None
    """What commands reach over the network; None: nothing. Only where they have a network of their own."""

    @property
    def confined(self) -> bool:
        """Whether commands are confined by the process tier, alone or inside a stronger one."""
        return self.tier in ("process", "bubblewrap") or (self.tier == "external" and not self.problem)

    @property
    def namespaces(self) -> bool:
        return self.tier == "bubblewrap"

    def show_in_metrics(self) -> None:
        _TIER.labels(self.tier or "refused").set(1)
