"""Chooses the next call at an account, by each tenant's share of it.

The tenant with the smallest dominant share of the account's limits goes first; among equal shares, start tags
alternate. Sources: Ghodsi et al., "Dominant resource fairness", 2011; Goyal et al., "Start-time fair queueing", 1996.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from dataclasses import dataclass, field

from services.llm_gateway.providers.provider_file import Quota

HELD_S = 15.0
"""How long a place at the account is held for a tenant after its last call; a run's tools and a reader's short thought
take less."""


@dataclass(slots=True)
class Reservation:
    """One request's share; `tokens` is an estimate while it runs."""

    at_s: float
    tokens: int
    use: TenantUse
    is_in_window: bool = False


@dataclass(frozen=True, slots=True)
class Waiter:
    tokens: int
    admission: asyncio.Future[Reservation]


@dataclass(slots=True)
class TenantUse:
    tenant: str
    running: int = 0
    requests: int = 0
    """Requests in the account's window, like `tokens`."""
    tokens: int = 0
    held_until_s: float = 0
    """Time until which a place is held for the tenant, on the loop's clock."""
    finish_tag: float = 0
    """Virtual time at which the tenant's last call had its turn."""
    waiters: deque[Waiter] = field(default_factory=deque["Waiter"])

    def measure_share(self, quota: Quota) -> float:
        """Return the tenant's greatest share of a limit, divided by its weight; 0 without limits."""
        parts = (
            self.running / (quota.concurrency or math.inf),
            self.requests / (quota.requests_per_minute or math.inf),
            self.tokens / (quota.tokens_per_minute or math.inf),
        )
        return max(parts) / quota.get_weight(self.tenant)

    def is_idle(self, now_s: float) -> bool:
        return not (self.running or self.requests or self.waiters) and self.held_until_s <= now_s


class TenantUses:
    """All tenants that have called within the window, by name."""

    def __init__(self) -> None:
        self._uses: dict[str, TenantUse] = {}
        self._virtual_time = 0.0

    def get_use(self, tenant: str, now_s: float) -> TenantUse:
        if (use := self._uses.get(tenant)) is None:
            self._uses = {name: use for name, use in self._uses.items() if not use.is_idle(now_s)}
            use = self._uses[tenant] = TenantUse(tenant)
        return use

    def rank_waiting(self, quota: Quota) -> list[TenantUse]:
        """Return the tenants with waiting calls, the next one first."""
        waiting = [use for use in self._uses.values() if use.waiters]
        return sorted(waiting, key=lambda use: (use.measure_share(quota), self._start_tag(use)))

    def take_turn(self, use: TenantUse, weight: int) -> None:
        self._virtual_time = self._start_tag(use)
        use.finish_tag = self._virtual_time + 1 / weight

    def list_holds(self, now_s: float) -> list[float]:
        """Return the times until which places are held for tenants that recently had one but have none now; soonest
        first."""
        return sorted(use.held_until_s for use in self._uses.values() if not use.running and use.held_until_s > now_s)

    def _start_tag(self, use: TenantUse) -> float:
        return max(use.finish_tag, self._virtual_time)
