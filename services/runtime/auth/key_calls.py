"""Rate limits of API keys: calls are reserved at memory, a second's worth at a time, and counted here while memory is
unavailable.

So a key's limit applies across all replicas of all services, and only the first call of a lot waits for memory.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import grpc
import structlog

from headrace.errors import HeadraceError, QuotaExceeded
from services.runtime.clock import monotonic_s

if TYPE_CHECKING:
    from headrace.v1 import keys_pb2


MINUTE_S = 60.0

LOTS_PER_MINUTE = 60
"""Lots per minute: a replica that stops using a key wastes at most one lot, a sixtieth of the limit."""

LOT_GOOD_S = 5.0
"""How long a lot of calls may be used; if kept longer, its rest would add to the calls of another minute."""

REFUSED_S_MIN = 0.02
"""Minimum wait before the next request to memory after it granted no calls."""

ALONE_S = 1.0
"""How long memory is not called again after it did not answer."""

TakeCalls: TypeAlias = "Callable[[str, int], Awaitable[keys_pb2.TakeKeyCallsResponse]]"
"""Takes calls of a key from memory; raises HeadraceError or AioRpcError."""

log = structlog.get_logger()


@dataclass(slots=True)
class _Bucket:
    full_at_s: float = 0.0
    """Time at which all calls of the key are available again, as far as this process knows."""
    calls: int = 0
    """Calls left of the last lot."""
    good_until_s: float = 0.0
    refused_until_s: float = 0.0
    """Time until which memory has refused further calls."""
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held during a request to memory, because other calls wait for the same lot."""


class KeyCalls:
    """Used on the event loop only."""

    def __init__(self) -> None:
        self._take: TakeCalls | None = None
        self._buckets: dict[str, _Bucket] = {}
        self._alone_until_s = 0.0

    def take_from(self, take: TakeCalls | None) -> None:
        """Set where calls are taken; None: only this process counts them."""
        self._take = take

    def forget(self, key_id: str) -> None:
        """Forget a key that no longer has a limit on its calls."""
        self._buckets.pop(key_id, None)

    async def count(self, key_id: str, per_minute: int) -> None:
        """Count a call. Raises QuotaExceeded."""
        bucket = self._buckets.get(key_id)
        if bucket is None:
            bucket = self._buckets[key_id] = _Bucket()
        while not _use_lot(bucket, per_minute):
            async with bucket.lock:
                if _has_lot(bucket):
                    continue
                _check_refused(bucket, per_minute)
                if self._take is None or monotonic_s() < self._alone_until_s:
                    now_s = monotonic_s()
                    full_at_s = max(now_s, bucket.full_at_s) + MINUTE_S / per_minute
                    if (wait_s := full_at_s - now_s - MINUTE_S) > 1e-6:
                        raise _make_refusal(per_minute, wait_s)
                    bucket.full_at_s = full_at_s
                    return
                await self._take_lot(self._take, key_id, bucket, per_minute)

    def measure(self, key_id: str, per_minute: int) -> tuple[int, float]:
        """Return the calls that count now, of those in a minute, and the seconds until the next one is available."""
        if not per_minute:
            return 0, 0.0
        gap_s, bucket = MINUTE_S / per_minute, self._buckets.get(key_id) or _Bucket()
        used_s = max(0.0, bucket.full_at_s - monotonic_s() - (bucket.calls if _has_lot(bucket) else 0) * gap_s)
        return math.ceil(used_s / gap_s - 1e-6), max(0.0, used_s + gap_s - MINUTE_S)

    async def _take_lot(self, take: TakeCalls, key_id: str, bucket: _Bucket, per_minute: int) -> None:
        try:
            taken = await take(key_id, max(1, per_minute // LOTS_PER_MINUTE))
        except (HeadraceError, grpc.aio.AioRpcError) as error:
            # Keys and their limits remain in force while memory is unavailable; each replica counts alone.
            log.warning("calls of api keys are counted here alone", problem=type(error).__name__)
            self._alone_until_s = monotonic_s() + ALONE_S
            return
        now_s = monotonic_s()
        bucket.full_at_s = now_s + taken.full_in_ms / 1000
        bucket.calls, bucket.good_until_s = taken.granted, now_s + LOT_GOOD_S
        if not taken.granted:
            bucket.refused_until_s = now_s + max(REFUSED_S_MIN, taken.retry_after_ms / 1000)


def _has_lot(bucket: _Bucket) -> bool:
    return bucket.calls > 0 and monotonic_s() < bucket.good_until_s


def _use_lot(bucket: _Bucket, per_minute: int) -> bool:
    """Use a call of the lot; return False if it has none. Raises QuotaExceeded."""
    if _has_lot(bucket):
        bucket.calls -= 1
        return True
    _check_refused(bucket, per_minute)
    return False


def _check_refused(bucket: _Bucket, per_minute: int) -> None:
    if (wait_s := bucket.refused_until_s - monotonic_s()) > 0:
        raise _make_refusal(per_minute, wait_s)


def _make_refusal(per_minute: int, wait_s: float) -> QuotaExceeded:
    return QuotaExceeded(
        f"the API key has {per_minute} calls a minute; try again later", retry_after_s=wait_s, limit=per_minute
    )
