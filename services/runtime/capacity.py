"""Concurrent work: limits that tenants share, turns for calls that arrive together, and a counter to wait for."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from contextvars import Context
from weakref import WeakKeyDictionary

from headrace.errors import Overloaded

RETRY_AFTER_S = 5.0
"""Wait that refused callers are asked for."""


class Capacity:
    def __init__(self, size: int, *, is_shared: bool) -> None:
        """Without `is_shared`, all callers are one tenant that may have all slots."""
        self.size = size
        self.used = 0
        self._is_shared = is_shared
        self._taken: dict[str, int] = {}

    def count_taken(self, tenant: str) -> int:
        return self._taken.get(tenant, 0)

    def has_room_for(self, tenant: str) -> bool:
        free = self.size - self.used
        return free > (self._taken.get(tenant, 0) if self._is_shared else 0)

    def acquire(self, tenant: str) -> None:
        """Take a slot, even if none is free."""
        self.used += 1
        self._taken[tenant] = self._taken.get(tenant, 0) + 1

    def release(self, tenant: str) -> None:
        self.used -= 1
        decrement_count(self._taken, tenant)

    @contextmanager
    def using_slot(self, tenant: str, uses: str) -> Generator[None]:
        """Hold a slot inside the block; `uses` says what the taken ones do, such as "uploads are under way already".

        Raises:
            Overloaded: No slot is left for the tenant.
        """
        if not self.has_room_for(tenant):
            raise Overloaded(f"{self.used} {uses}; try again later")
        self.acquire(tenant)
        try:
            yield
        finally:
            self.release(tenant)


def decrement_count(taken: dict[str, int], tenant: str) -> None:
    taken[tenant] -= 1
    if not taken[tenant]:
        del taken[tenant]


PASSES_MAX = 1
"""Calls admitted per turn of the loop, at about 1 ms each: a call needs some dozens of turns, and during a flood each
takes as long as what it admits."""


class Turnstile:
    """Limits how many calls begin in one turn of an event loop; the servers' limits bound the queue."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}
        """Waiting calls by tenant; the tenant with the next turn comes first."""
        self._passes_left = PASSES_MAX
        self._woken = 0
        """Calls that were let in from the queue in this turn, and begin in the next."""
        self._is_turning = False
        self._context = Context()
        """Turns belong to no call, whose end could take them along."""

    async def pass_through(self, tenant: str) -> None:
        """Return at once unless many calls arrive in this moment."""
        loop = asyncio.get_running_loop()
        if not self._is_turning:
            self._is_turning = True
            loop.call_soon(self._turn, loop, context=self._context)
        if self._passes_left and not self._waiting:
            self._passes_left -= 1
            return
        passage: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(tenant, deque()).append(passage)
        await passage

    def _turn(self, loop: asyncio.AbstractEventLoop) -> None:
        self._passes_left, self._woken = PASSES_MAX - self._woken, 0
        while self._waiting and self._woken < PASSES_MAX:
            tenant, queue = next(iter(self._waiting.items()))
            del self._waiting[tenant]
            passage = queue.popleft()
            if queue:
                self._waiting[tenant] = queue  # after all others
            if not passage.done():  # its caller may have left
                passage.set_result(None)
                self._woken += 1
        self._is_turning = self._woken > 0 or self._passes_left < PASSES_MAX
        if self._is_turning:
            loop.call_soon(self._turn, loop, context=self._context)


_TURNSTILES = WeakKeyDictionary[asyncio.AbstractEventLoop, Turnstile]()


def get_turnstile() -> Turnstile:
    """Return the running loop's turnstile: all services in a process share its turns."""
    loop = asyncio.get_running_loop()
    if (turnstile := _TURNSTILES.get(loop)) is None:
        turnstile = _TURNSTILES[loop] = Turnstile()
    return turnstile


class InFlightCounter:
    def __init__(self) -> None:
        self.count = 0
        self._none_left: asyncio.Event | None = None
        """Set when no call is running; None until somebody waits for that."""

    def increment(self) -> None:
        self.count += 1
        if self._none_left is not None:
            self._none_left.clear()

    def decrement(self) -> None:
        self.count -= 1
        if self._none_left is not None and not self.count:
            self._none_left.set()

    async def wait_until_zero(self, timeout_s: float) -> None:
        """Return when no call is running, or after `timeout_s`."""
        if not self.count:
            return
        self._none_left = self._none_left or asyncio.Event()
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._none_left.wait()
