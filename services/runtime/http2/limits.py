"""Every bound on what a peer may make us hold or do, with its reason.

Bounds looked at for each message are constants; the others are in `Limits`, so that tests can lower them.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_BYTES = 64 * 1024
"""A stream's flow-control window: bytes that may wait for a slow reader."""

CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024
"""The connection's window, extended as bytes arrive, so that a slow stream never stops the others."""

BACKLOG_BYTES = 64 * 1024
"""Bytes that may wait to be sent on a stream before its source is told to stop."""

FRAME_BYTES_MAX = 16 * 1024
"""Payload of one frame, in both directions; the least that HTTP/2 allows."""

HEADERS_BYTES_MAX = 16 * 1024
"""Size of a header list by HPACK's count, as told to peers (gRPC's default is 8 KiB to 16 KiB)."""

HEADERS_BYTES_TAKEN_MAX = 64 * 1024
"""Size of a header list that is still taken; a larger one ends the connection, since skipping it leaves HPACK's table
unknown."""

STATUS_MESSAGE_BYTES_MAX = 2 * 1024
"""Size of a status message as a header; the rest is cut off."""

OUT_PIECES_MAX = 1024
"""Pieces of at most 16 KiB written in one wake-up before the socket is asked to take them."""

SETTINGS_KEPT = 64
"""Kinds of settings kept for one peer; about ten are defined."""

CLOSED_STREAMS_KEPT = 4096
"""Closed streams that are remembered, to tell late frames from wrong ones."""

CONTROL_BACKLOG_BYTES = 1024 * 1024
"""Unsent answers to pings and settings, in bytes, at which a peer who does not read is cut off."""

WAITING_MAX = 10_000
"""Calls of one channel that wait for a connection or a free stream."""

TURN_MESSAGES = 64
"""Answers that a handler writes without waiting before other tasks have a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    connections_max: int = 4096
    """Connections of one server; the next one is closed at once."""

    streams_max: int = 4096
    """Streams open on one connection; the next one is refused. The service's own limit is lower and has its own
    error."""

    handlers_max: int = 4096 + 1024
    """Running RPCs of one connection, those whose stream was reset included."""

    connect_s: float = 5.0
    """Time for a channel to reach one address, TLS and the server's settings included."""

    preface_s: float = 10.0
    """Time for TLS, then for the peer's preface and settings; also for the frames of one header block."""

    request_s: float = 60.0
    """Time for the one message of a call that has just one."""

    keepalive_s: float = 15.0
    """A peer that was silent for this long, up to twice that, is pinged."""

    keepalive_timeout_s: float = 10.0
    """Time for the answer to a ping, after which the peer counts as gone."""

    last_calls_s: float = 1.0
    """Time between announcing a connection's end and refusing its new calls, unless the peer confirms earlier."""

    close_s: float = 1.0
    """Time for a peer to take a connection's last bytes."""

    control_per_s: float = 100.0
    """Control frames a second beyond CONTROL_BURST; grpc's own clients ping a few times a second."""

    resets_per_s: float = 200.0
    """Resets a second beyond RESET_BURST."""


DEFAULTS = Limits()

CONTROL_BURST = 1000
"""PING, SETTINGS, PRIORITY and empty DATA frames at once (CVE-2019-9512, -9513, -9515, -9518)."""

RESET_BURST = 1000
"""Streams that a client opened and reset before any answer (CVE-2023-44487)."""
