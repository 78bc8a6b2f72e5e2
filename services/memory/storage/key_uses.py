"""What API keys use of their limits, over all replicas of all services: the interface, and its rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MINUTE_MS = 60_000

RESERVED_MS = 60_000
"""How long a place for a run is kept that has not begun: longer than its query takes to be stored."""


@dataclass(frozen=True, slots=True)
class CallUse:
    """What is left of a key's calls, by a bucket that a minute fills."""

    full_at_us: int
    """When none of it will be used, Unix microseconds."""
    granted: int

    def wait_ms(self, per_minute: int, now_ms: int) -> int:
        """Return after how long there is one more; 0: now."""
        return max(0, -((now_ms * 1000 + MINUTE_MS * 1000 - find_gap_us(per_minute) - self.full_at_us) // 1000))


def find_gap_us(per_minute: int) -> int:
    return MINUTE_MS * 1000 // per_minute


def take_from_bucket(full_at_us: int, per_minute: int, wanted: int, now_ms: int) -> CallUse:
    """Take as much of what is wanted as there is; nothing where another service's clock is before this one's."""
    now_us, gap_us = now_ms * 1000, find_gap_us(per_minute)
    full_at_us = max(full_at_us, now_us)
    granted = max(0, min(wanted, (now_us + MINUTE_MS * 1000 - full_at_us) // gap_us))
    return CallUse(full_at_us + granted * gap_us, granted)


class KeyUses(Protocol):
    async def take_calls(self, key_id: str, per_minute: int, wanted: int) -> CallUse:
        """Take up to `wanted` calls of the key's for who asks, so that nobody else has them."""
        ...

    async def reserve_run(self, tenant: str, credential: str, run_id: str, runs_max: int) -> bool:
        """Keep a place among the key's live runs, those that wait for people included, for one that is about to be
        stored; False where all are taken. A run that has its place keeps it."""
        ...

    async def release_run(self, credential: str, run_id: str) -> None:
        """Give a place up whose run was not stored."""
        ...
