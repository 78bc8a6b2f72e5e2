"""Channels to peers: one for each peer, for the process's life. The only place that creates them."""

from __future__ import annotations

import grpc

from services.runtime import transport
from services.runtime.http2.channel import Channel

MESSAGE_BYTES_MAX = 64 * 1024 * 1024
"""Between services (architecture.md)."""

OPTIONS: list[tuple[str, int | str]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A peer that restarts comes back within a second or so; the default of up to 120 s would look like an outage.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # The suite's own traffic never takes the detour that http_proxy names for the machine's.
    ("grpc.enable_http_proxy", 0),
    # A stream that its reader has stopped reading holds 64 KiB here; by this probe it grew to 5 MB (grpcio 1.85).
    ("grpc.http2.bdp_probe", 0),
    # Without this, channels of one process to one address share a connection.
    ("grpc.use_local_subchannel_pool", 1),
]


def connect(address: str) -> grpc.aio.Channel:
    """A channel to `address`: host:port, unix:/path, or dns:///host:port for all its replicas. The caller closes it."""
    if transport.in_use() == "h2":
        return Channel(address, message_bytes_max=MESSAGE_BYTES_MAX)
    return grpc.aio.insecure_channel(address, options=OPTIONS)
