"""Limits on the memory and work that a peer may cause, and their enforcement: rates of frames, and time to answer.

Limits checked for each message are constants; tests can lower the others, in `Limits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from h2.errors import ErrorCodes
from h2.exceptions import ProtocolError

WINDOW_BYTES = 64 * 1024
"""Maximum bytes of a stream that wait for a slow reader."""

CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024
"""The connection's window, extended on arrival, so that a slow stream does not stop others."""

BACKLOG_BYTES = 64 * 1024
"""Bytes queued on a stream before its source is paused."""

FRAME_BYTES_MAX = 16 * 1024
"""Maximum payload of a frame; the lowest limit that HTTP/2 allows."""

HEADERS_BYTES_MAX = 16 * 1024
"""Maximum size of a header list, by HPACK's count, announced to peers (gRPC's default is 8 to 16 KiB)."""

HEADERS_BYTES_TAKEN_MAX = 64 * 1024
"""Size of a header list that is still read: a client accepts it, for example a long error; a server refuses only its
call. A larger one ends the connection, because skipping it would leave HPACK's table unknown."""

OUT_PIECES_MAX = 1024
"""Pieces of at most 16 KiB that are collected before they are passed to the socket."""

SETTINGS_KEPT = 64
"""Maximum kinds of settings of a peer; about ten are defined."""

CLOSED_STREAMS_KEPT = 4096
"""Number of closed streams remembered, to distinguish late frames from wrong ones."""

CONTROL_BACKLOG_BYTES = 1024 * 1024
"""Unsent answers to pings and settings at which a peer is disconnected."""

ACCEPTING_MAX = 512
"""Connections that the system queues for a server until it has turns for them."""

ACCEPTED_IN_A_TURN = 32
"""Connections started per turn of the loop, at some 0.1 ms of processor time each."""

DEFERRED_MAX = 256
"""Accepted connections that wait until their addresses' shares allow them to begin; with the next one, the oldest is
closed."""

DEFERRED_S = 0.02
"""Time between two checks of them."""

ACCEPT_AGAIN_S = 1.0
"""Wait before a server accepts again after the system refused, as in asyncio."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnauthenticatedLimits:
    """Bounds for all connections of one address together that have had no admitted call."""

    processor_share: float = 0.05
    """Share of the processor for their input."""

    burst_s: float = 0.2
    """Processor time that they may accumulate."""

    bytes_max: int = 16 * 1024 * 1024
    """Bytes of requests that they may hold here; each call counts as CALL_BYTES."""

    connections_max: int = 256
    """Maximum number of them; with the next one, the one that has been silent longest is closed."""

    handshake_s: float = 0.002
    """Processor time charged for a TLS handshake before it begins, the cost with P-256 certificates at both ends;
    further time is charged too. Everything is refunded when a call is admitted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    connections_max: int = 4096
    """Maximum connections of a server; further ones are closed at once."""

    streams_max: int = 4096
    """Maximum open streams of a connection; the next one is refused. A service's own limit is lower."""

    handlers_max: int = 4096 + 1024
    """Maximum running RPCs of a connection, including reset ones."""

    connect_s: float = 5.0
    """Time to reach an address, including TLS and the server's settings."""

    preface_s: float = 10.0
    """Time for TLS, for the peer's settings, and for the frames of a header block."""

    request_s: float = 60.0
    """Time for the message of a call that has exactly one."""

    keepalive_s: float = 15.0
    """Silence of a peer, up to twice as long, after which it is pinged. Our channels connect only to peers of the
    suite: a stock grpc-go server, which accepts one ping in five minutes, would break a stream off after two silent
    intervals."""

    keepalive_timeout_s: float = 10.0
    """Time for the answer to a ping."""

    last_calls_s: float = 1.0
    """Time between a GOAWAY and the refusal of new calls, unless the peer confirms earlier."""

    close_s: float = 1.0
    """Time for a peer to read a connection's last bytes."""

    control_per_s: float = 100.0
    """Control frames per second, beyond CONTROL_BURST and one for each write with DATA: grpc-go answers it with a
    ping."""

    resets_per_s: float = 200.0
    """Resets per second beyond RESET_BURST."""

    turn_s: float = 0.002
    """Processor time for the input of one connection before others get a turn; one more frame is still handled."""

    unauthenticated: UnauthenticatedLimits = UnauthenticatedLimits()


DEFAULTS = Limits()

IDLE_FRAMES_BURST = 20_000
"""WINDOW_UPDATE, unknown frames, unsolicited answers, RST_STREAM of closed streams. An honest peer sends a
WINDOW_UPDATE for every 16 KiB or more that it reads."""

IDLE_FRAMES_PER_S = 5000.0
"""Frames per second beyond the burst."""

REFUSED_BURST = 1000
"""Maximum calls of one connection without a credential or of unknown methods."""

REFUSED_PER_S = 200.0
"""Calls per second beyond the burst."""

CALL_BYTES = 16 * 1024
"""Memory of a call: its task, its stream, its headers."""

CONNECTION_S = 0.0004
"""Processor time of a connection, excluding its input."""

REFUSED_CALL_S = 0.00015
"""Processor time of a refused call, excluding its frames: a task, the check, a log line."""

TABLE_BLOCKS_MAX = 256
"""Maximum header blocks in which a peer may use a table before it confirms our settings, which allow none."""

CONTROL_BURST = 1000
"""Burst of PING, SETTINGS, PRIORITY and empty DATA frames (CVE-2019-9512, -9513, -9515, -9518)."""

RESET_BURST = 1000
"""Burst of streams that are opened and reset before any answer (CVE-2023-44487)."""


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
        """Record settings; return whether they are the first."""
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
        """Ping a silent peer; disconnect one that does not answer."""
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
    """A token bucket, one per connection, which an honest peer never exhausts."""

    __slots__ = ("_at_s", "_burst", "_clock", "_count_earned", "_earned", "_left", "_per_s", "_what")

    def __init__(self, what: str, burst: int, per_s: float, count_earned: Callable[[], int] = lambda: 0) -> None:
        """`count_earned` returns the tokens that the peer has earned so far, besides those of the time."""
        self._what = what
        self._burst = burst
        self._per_s = per_s
        self._clock = asyncio.get_running_loop().time
        self._left = float(burst)
        self._at_s = self._clock()
        self._count_earned, self._earned = count_earned, 0

    def spend_one(self) -> None:
        """Take one token; raises RateExceeded if none is left."""
        now_s, earned = self._clock(), self._count_earned()
        new = (now_s - self._at_s) * self._per_s + earned - self._earned
        self._left = min(self._burst, self._left + new) - 1
        self._at_s, self._earned = now_s, earned
        if self._left < 0:
            raise RateExceeded(f"too many {self._what}")
