"""Room for so many things at a time, shared by tenants: a tenant may have as many of them as it leaves free.

A tenant alone has half of the room, the next one half of the rest, and so on: whoever comes finds some, and nobody has
to say how many tenants there are or what each is to have. It is how switches share their buffers: Choudhury and Hahne,
"Dynamic queue length thresholds for shared-memory packet switches", 1998, with a factor of 1.
"""

from __future__ import annotations

from collections import Counter

RETRY_AFTER_S = 5.0
"""What who finds no room is told to wait: so long that a thousand of them are no load."""


class Capacity:
    """Of one process. Touched on the event loop only."""

    def __init__(self, size: int, *, is_shared: bool) -> None:
        """`is_shared`: by tenants; else everybody is one, which may have it all."""
        self.size = size
        self._is_shared = is_shared
        self._taken: Counter[str] = Counter()
        """By tenant."""

    @property
    def used(self) -> int:
        """Of all tenants."""
        return self._taken.total()

    def has_room_for(self, tenant: str) -> bool:
        """Whether the tenant may take one more."""
        free = self.size - self.used
        return free > (self._taken[tenant] if self._is_shared else 0)

    def acquire(self, tenant: str) -> None:
        """Have one, whether there is room or not: who has been accepted is not refused."""
        self._taken[tenant] += 1

    def release(self, tenant: str) -> None:
        """Leave one to others."""
        decrement_count(self._taken, tenant)


def decrement_count(taken: Counter[str], tenant: str) -> None:
    """Count one off; a tenant that has none is not kept."""
    taken[tenant] -= 1
    if not taken[tenant]:
        del taken[tenant]
