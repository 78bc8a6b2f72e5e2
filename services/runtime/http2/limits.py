"""What a peer may make us hold or do; every bound of the transport in one place, with its reason."""

from __future__ import annotations

WINDOW_BYTES = 64 * 1024
"""A stream's flow-control window: what may wait here for a reader that does not read."""

CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024
"""Given back as bytes arrive: streams hold themselves back, so that a slow one never stops its neighbours."""

BACKLOG_BYTES = 64 * 1024
"""What may wait here to be sent on a stream before its source is told to stop."""

FRAME_BYTES_MAX = 16 * 1024
"""Of one frame, in both directions; the least that HTTP/2 allows, which keeps turns of streams short."""

HEADERS_BYTES_MAX = 16 * 1024
"""Of one header list, as HPACK counts it (gRPC's default is 8 KiB to 16 KiB)."""

STREAMS_MAX = 4096
"""Open at a time on one connection. The service's own limit of streaming RPCs is lower and has an error of its own."""

HANDLERS_MAX = STREAMS_MAX + 1024
"""Running RPCs of one connection, those whose stream was reset included: opening and resetting does not go round it."""

CLOSED_STREAMS_KEPT = 4096
"""Closed streams whose late frames are told from frames of streams that never were."""

CONTROL_BACKLOG_BYTES = 1024 * 1024
"""Unsent bytes, at a peer who does not read, at which the answers to its pings and settings are too many."""

PREFACE_S = 10.0
"""From the connection to the client's preface and settings, TLS included; and for one header block's frames."""

REQUEST_S = 60.0
"""For the one message of a call that has just one: nobody types a request."""

KEEPALIVE_S = 30.0
"""Of silence, then the peer is pinged."""

KEEPALIVE_TIMEOUT_S = 10.0
"""For the answer; a peer that does not give one is gone."""

LAST_CALLS_S = 1.0
"""Between saying that a connection ends and refusing its new calls, if the peer does not confirm before."""

CLOSE_S = 1.0
"""For a peer to take the last bytes of a connection that ends."""

WAITING_MAX = 10_000
"""Calls of one channel that wait for a connection or a free stream."""


class Allowance:
    """So many at once, and so many a second after that: what an honest peer never uses up."""

    __slots__ = ("_at_s", "_burst", "_left", "_per_s")

    def __init__(self, burst: int, per_s: float, now_s: float) -> None:
        self._burst = burst
        self._per_s = per_s
        self._left = float(burst)
        self._at_s = now_s

    def takes(self, now_s: float) -> bool:
        """Take one; False: there is none left."""
        self._left = min(self._burst, self._left + (now_s - self._at_s) * self._per_s) - 1
        self._at_s = now_s
        return self._left >= 0


CONTROL_BURST, CONTROL_PER_S = 1000, 100.0
"""PING, SETTINGS, PRIORITY and empty DATA frames (CVE-2019-9512, -9513, -9515, -9518): grpc's own clients ping a few
times a second."""

RESET_BURST, RESET_PER_S = 1000, 200.0
"""Streams that the client opened and reset before it got anything (CVE-2023-44487)."""
