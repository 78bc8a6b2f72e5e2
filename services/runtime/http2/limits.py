"""Bounds on what a peer may make us hold or do.

Those looked at for each message are constants; tests can lower the others, in `Limits`.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_BYTES = 64 * 1024
"""Bytes of a stream that may wait for a slow reader."""

CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024
"""The connection's window, extended on arrival, so that a slow stream stops no other."""

BACKLOG_BYTES = 64 * 1024
"""Bytes that wait on a stream before its source is stopped."""

FRAME_BYTES_MAX = 16 * 1024
"""Payload of a frame; the least limit that HTTP/2 allows."""

HEADERS_BYTES_MAX = 16 * 1024
"""Size of a header list, by HPACK's count, that peers are told (gRPC's default is 8 to 16 KiB)."""

HEADERS_BYTES_TAKEN_MAX = 64 * 1024
"""Size above which a header list ends the connection, as skipping it leaves HPACK's table unknown."""

STATUS_MESSAGE_BYTES_MAX = 2 * 1024
OUT_PIECES_MAX = 1024
"""Pieces of at most 16 KiB collected before the socket is asked to take them."""

SETTINGS_KEPT = 64
"""Kinds of settings of a peer; about ten are defined."""

CLOSED_STREAMS_KEPT = 4096
"""Closed streams remembered, to tell late frames from wrong ones."""

CONTROL_BACKLOG_BYTES = 1024 * 1024
"""Unsent answers to pings and settings at which a peer is cut off."""

WAITING_MAX = 10_000
"""Calls of a channel that wait for a connection or stream."""

TURN_MESSAGES = 64
"""Answers written in a row before other tasks have a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    connections_max: int = 4096
    """Connections of a server; the next one is closed at once."""

    streams_max: int = 4096
    """Open streams of a connection; the next one is refused. A service's own limit is lower."""

    handlers_max: int = 4096 + 1024
    """Running RPCs of a connection, reset ones included."""

    connect_s: float = 5.0
    """Time to reach an address, TLS and the server's settings included."""

    preface_s: float = 10.0
    """Time for TLS, for the peer's settings, and for the frames of a header block."""

    request_s: float = 60.0
    """Time for the message of a call that has just one."""

    keepalive_s: float = 15.0
    """A peer that is silent for this long, up to twice that, is pinged."""

    keepalive_timeout_s: float = 10.0
    """Time for the answer to a ping."""

    last_calls_s: float = 1.0
    """Time between a GOAWAY and refusing calls, unless the peer confirms earlier."""

    close_s: float = 1.0
    """Time for a peer to take a connection's last bytes."""

    control_per_s: float = 100.0
    """Control frames a second beyond CONTROL_BURST; grpc's clients ping a few times a second."""

    resets_per_s: float = 200.0
    """Resets a second beyond RESET_BURST."""


DEFAULTS = Limits()

CONTROL_BURST = 1000
"""PING, SETTINGS, PRIORITY and empty DATA frames at once (CVE-2019-9512, -9513, -9515, -9518)."""

RESET_BURST = 1000
"""Streams opened and reset before any answer (CVE-2023-44487)."""
