"""Usage of API keys' limits, across all replicas of all services: the interface, and its rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

MINUTE_MS = 60_000

RESERVED_MS = 60_000
"""How long a reservation for a run is kept; longer than storing its query takes."""


@dataclass(frozen=True, slots=True)
class CallUse:
    """The remaining calls of a key, as a bucket that refills within a minute."""

    full_at_us: int
    """When the bucket is full again, in Unix microseconds."""
    granted: int

    def wait_ms(self, per_minute: int, now_ms: int) -> int:
        """Return the milliseconds until one more call is available; 0: now."""
        return max(0, -((now_ms * 1000 + MINUTE_MS * 1000 - find_gap_us(per_minute) - self.full_at_us) // 1000))


def find_gap_us(per_minute: int) -> int:
    return MINUTE_MS * 1000 // per_minute


def take_from_bucket(full_at_us: int, per_minute: int, wanted: int, now_ms: int) -> CallUse:
    """Take as many calls as are wanted and available; none if another service's clock is ahead of this one's."""
    now_us, gap_us = now_ms * 1000, find_gap_us(per_minute)
    full_at_us = max(full_at_us, now_us)
    granted = max(0, min(wanted, (now_us + MINUTE_MS * 1000 - full_at_us) // gap_us))
    return CallUse(full_at_us + granted * gap_us, granted)


class KeyUses(Protocol):
    async def take_calls(self, key_id: str, per_minute: int, wanted: int) -> CallUse:
        """Take up to `wanted` of the key's calls for the caller."""
        ...

    async def reserve_run(self, tenant: str, credential: str, run_id: str, runs_max: int) -> bool:
        """Reserve one of the key's live runs, including those that wait for people, for one about to be stored.

        Returns False if all are taken. A run that already has its reservation keeps it.
        """
        ...

    async def release_run(self, credential: str, run_id: str) -> None:
        """Release the reservation of a run that was not stored."""
        ...
