"""A limit on concurrent work that tenants share: each may use as much as it leaves free.

A lone tenant gets half of the slots, the next one half of the rest, so that a newcomer always finds some. Source:
Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998, with a factor of 1.
"""

from __future__ import annotations

from collections import Counter

RETRY_AFTER_S = 5.0
"""Wait that refused callers are told."""


class Capacity:
    def __init__(self, size: int, *, is_shared: bool) -> None:
        """Without `is_shared`, all callers are one tenant that may have all slots."""
        self.size = size
        self._is_shared = is_shared
        self._taken: Counter[str] = Counter()

    @property
    def used(self) -> int:
        return self._taken.total()

    def count_taken(self, tenant: str) -> int:
        return self._taken[tenant]

    def has_room_for(self, tenant: str) -> bool:
        free = self.size - self.used
        return free > (self._taken[tenant] if self._is_shared else 0)

    def acquire(self, tenant: str) -> None:
        """Take a slot, even if none is free."""
        self._taken[tenant] += 1

    def release(self, tenant: str) -> None:
        decrement_count(self._taken, tenant)


def decrement_count(taken: Counter[str], tenant: str) -> None:
    taken[tenant] -= 1
    if not taken[tenant]:
        del taken[tenant]
