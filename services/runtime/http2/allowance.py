"""Rate limits for peers."""

from __future__ import annotations

import asyncio

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError


class RateExceeded(ProtocolError):
    error_code = ErrorCodes.ENHANCE_YOUR_CALM


class RateLimit:
    """A token bucket, one per connection, which an honest peer never uses up."""

    __slots__ = ("_at_s", "_burst", "_clock", "_left", "_per_s", "_what")

    def __init__(self, what: str, burst: int, per_s: float) -> None:
        self._what = what
        self._burst = burst
        self._per_s = per_s
        self._clock = asyncio.get_running_loop().time
        self._left = float(burst)
        self._at_s = self._clock()

    def spend_one(self) -> None:
        """Take one token; raises RateExceeded if none is left."""
        now_s = self._clock()
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s) - 1
        self._at_s = now_s
        if self._left < 0:
            raise RateExceeded(f"too many {self._what}")

    def earn(self, tokens: int) -> None:
        """Put tokens back, up to the burst."""
        self._left = min(self._burst, self._left + tokens)
