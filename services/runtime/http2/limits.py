"""Limits of what a peer may make us hold or do; every bound of the transport in one place, with its reason.

What is looked at for each message is a constant; what is looked at for a connection or a call is in `Limits`, of which
tests have smaller ones.
"""

from __future__ import annotations

from dataclasses import dataclass

WINDOW_BYTES = 64 * 1024
"""A stream's flow-control window: bytes that may wait for a reader that does not read."""

CONNECTION_WINDOW_BYTES = 16 * 1024 * 1024
"""Given back as bytes arrive: streams hold themselves back, so that a slow one never stops its neighbours."""

BACKLOG_BYTES = 64 * 1024
"""Bytes that may wait to be sent on a stream before its source is told to stop."""

FRAME_BYTES_MAX = 16 * 1024
"""Payload of one frame, in both directions; the least that HTTP/2 allows, which keeps turns of streams short."""

HEADERS_BYTES_MAX = 16 * 1024
"""One header list, as HPACK counts it and as peers are told (gRPC's default is 8 KiB to 16 KiB)."""

HEADERS_BYTES_TAKEN_MAX = 64 * 1024
"""One header list that a peer sends all the same. A larger one ends the connection, with every call on it: a block
that is not unpacked leaves the table unknown for the next."""

STATUS_MESSAGE_BYTES_MAX = 2 * 1024
"""A status message as a header; the rest is cut off, so that trailers stay below what any peer takes."""

OUT_PIECES_MAX = 1024
"""Pieces of frames, of 16 KiB at most, that are written in one wake-up before the socket is asked to take them."""

SETTINGS_KEPT = 64
"""Kinds of settings of one peer, of which there are about ten; each is kept until the connection ends."""

CLOSED_STREAMS_KEPT = 4096
"""Closed streams whose late frames are told from frames of streams that never were."""

CONTROL_BACKLOG_BYTES = 1024 * 1024
"""Unsent bytes, at a peer who does not read, at which the answers to its pings and settings are too many."""

WAITING_MAX = 10_000
"""Calls of one channel that wait for a connection or a free stream."""

TURN_MESSAGES = 64
"""Answers that a handler writes without ever waiting, before the loop's other tasks have a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """For each connection and call."""

    connections_max: int = 4096
    """Connections of one server; the next one is closed at once."""

    streams_max: int = 4096
    """Open at a time on one connection; the next one is refused. The service's own limit of streaming RPCs is lower
    and has an error of its own."""

    handlers_max: int = 4096 + 1024
    """Running RPCs of one connection, those whose stream was reset included: opening and resetting does not go round
    `streams_max`."""

    connect_s: float = 5.0
    """For a channel to reach one address, TLS and the server's settings included."""

    preface_s: float = 10.0
    """For TLS, then for the peer's preface and settings; and for one header block's frames."""

    request_s: float = 60.0
    """For the one message of a call that has just one: nobody types a request."""

    keepalive_s: float = 15.0
    """A peer that was silent for so long, up to twice that, is pinged."""

    keepalive_timeout_s: float = 10.0
    """For the answer; a peer that does not give one is gone."""

    last_calls_s: float = 1.0
    """Between saying that a connection ends and refusing its new calls, if the peer does not confirm before."""

    close_s: float = 1.0
    """For a peer to take the last bytes of a connection that ends."""

    control_per_s: float = 100.0
    """Beyond CONTROL_BURST: grpc's own clients ping a few times a second."""

    resets_per_s: float = 200.0
    """Beyond RESET_BURST."""


DEFAULTS = Limits()

CONTROL_BURST = 1000
"""PING, SETTINGS, PRIORITY and empty DATA frames at once (CVE-2019-9512, -9513, -9515, -9518)."""

RESET_BURST = 1000
"""Streams that the client opened and reset before it got anything (CVE-2023-44487)."""
