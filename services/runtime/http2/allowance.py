"""A token bucket for what a peer may do often, but not too often."""

from __future__ import annotations

import asyncio

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError


class RateExceeded(ProtocolError):
    """The peer does more than an honest one would."""

    error_code = ErrorCodes.ENHANCE_YOUR_CALM


class RateLimit:
    """Belongs to one connection; an honest peer never uses it up."""

    __slots__ = ("_at_s", "_burst", "_clock", "_left", "_per_s", "_what")

    def __init__(self, what: str, burst: int, per_s: float) -> None:
        self._what = what
        self._burst = burst
        self._per_s = per_s
        self._clock = asyncio.get_running_loop().time
        self._left = float(burst)
        self._at_s = self._clock()

    def spend_one(self) -> None:
        """Take one.

        Raises:
            TooMuch: There is none left.
        """
        now_s = self._clock()
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s) - 1
        self._at_s = now_s
        if self._left < 0:
            raise RateExceeded(f"too many {self._what}")
