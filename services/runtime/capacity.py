"""A limit on concurrent work that tenants share: each may use as much as it leaves free.

A lone tenant gets half of the slots, the next one half of the rest, and so on, so that a newcomer always finds some.
Source: Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998, with a factor of
1.
"""

from __future__ import annotations

from collections import Counter

RETRY_AFTER_S = 5.0
"""How long a refused caller is asked to wait; a thousand such callers are no load."""


class Capacity:
    """The slots of one process, used on the event loop only."""

    def __init__(self, size: int, *, is_shared: bool) -> None:
        """Without `is_shared`, everybody counts as one tenant that may have all slots."""
        self.size = size
        self._is_shared = is_shared
        self._taken: Counter[str] = Counter()

    @property
    def used(self) -> int:
        return self._taken.total()

    def has_room_for(self, tenant: str) -> bool:
        free = self.size - self.used
        return free > (self._taken[tenant] if self._is_shared else 0)

    def acquire(self, tenant: str) -> None:
        """Take a slot even if none is free, as an accepted call is not refused later."""
        self._taken[tenant] += 1

    def release(self, tenant: str) -> None:
        decrement_count(self._taken, tenant)


def decrement_count(taken: Counter[str], tenant: str) -> None:
    """Subtract one; a tenant that has none left is removed."""
    taken[tenant] -= 1
    if not taken[tenant]:
        del taken[tenant]
