"""Holds peers to their limits: rates of frames, and time for settings, header blocks and answers to pings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

from services.runtime.http2.limits import Limits


class PeerWatch:
    def __init__(
        self,
        limits: Limits,
        *,
        may_ping: Callable[[], bool],
        ping: Callable[[], None],
        too_slow: Callable[[], None],
        gone: Callable[[], None],
    ) -> None:
        self.reads = 0
        """Wake-ups with input, counted by the connection."""
        self._limits = limits
        self._may_ping = may_ping
        self._ping = ping
        self._too_slow = too_slow
        self._gone = gone
        self._reads_seen = 0
        self._pinged = False
        self._loop = asyncio.get_running_loop()
        self._preface_due: asyncio.TimerHandle | None = None
        self._headers_due: asyncio.TimerHandle | None = None
        self._keepalive: asyncio.TimerHandle | None = None

    def start_watching(self) -> None:
        self._preface_due = self._loop.call_later(self._limits.preface_s, self._too_slow)
        self._keepalive = self._loop.call_later(self._limits.keepalive_s, self._check_peer)

    def note_settings(self) -> bool:
        """Note settings; return whether they are the first."""
        if self._preface_due is None:
            return False
        self._preface_due.cancel()
        self._preface_due = None
        return True

    def note_header_block(self, *, is_open: bool) -> None:
        if is_open and self._headers_due is None:
            self._headers_due = self._loop.call_later(self._limits.preface_s, self._too_slow)
        elif not is_open and self._headers_due is not None:
            self._headers_due.cancel()
            self._headers_due = None

    def note_ping_answer(self) -> None:
        self._pinged = False

    def stop_watching(self) -> None:
        for timer in (self._preface_due, self._headers_due, self._keepalive):
            if timer is not None:
                timer.cancel()

    def _check_peer(self) -> None:
        """Ping a silent peer; give up on one that does not answer."""
        wait_s = self._limits.keepalive_s
        if self.reads != self._reads_seen or not self._may_ping():
            self._pinged = False
        elif self._pinged:
            self._gone()
            return
        else:
            self._pinged = True
            self._ping()
            wait_s = self._limits.keepalive_timeout_s
        self._reads_seen = self.reads
        self._keepalive = self._loop.call_later(wait_s, self._check_peer)


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
