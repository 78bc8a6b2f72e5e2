"""Channels to peers; no other file creates them."""

from __future__ import annotations

import grpc

from services.runtime.auth.caller_credentials import AuthenticatedChannel, CallerMetadata
from services.runtime.calls.addresses import Target, parse_target
from services.runtime.calls.channel import DialingChannel
from services.runtime.calls.ends import Dialer
from services.runtime.http2.client.dialer import SocketDialer
from services.runtime.http2.limits import DEFAULTS
from services.runtime.local.dialer import LocalDialer
from services.runtime.local.network import NETWORK
from services.runtime.process import tls, transport

MESSAGE_BYTES_MAX = 64 * 1024 * 1024

EDGE_MESSAGE_BYTES_MAX = 4 * 1024 * 1024
"""Largest message of a caller outside the suite."""

OPTIONS: list[tuple[str, int]] = [
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


def open_channel(address: str, caller_metadata: CallerMetadata = ()) -> grpc.aio.Channel:
    """Return a channel to `address`, which the caller closes.

    Addresses are host:port, unix:/path, several with commas, dns:///host:port for all replicas of a name, or
    local:name on the transport `local`; raises ValueError for others, OSError when the certificates cannot be used.
    """
    if transport.get_transport() != "grpcio":
        return AuthenticatedChannel(DialingChannel(_make_dialer(parse_target(address))), caller_metadata)
    if "," in address:
        # It knows lists of IP addresses alone, and goes on asking a replica that is being stopped.
        raise ValueError(f"{address!r}: several addresses need {transport.VARIABLE}=h2")
    return AuthenticatedChannel(grpc.aio.insecure_channel(address, options=OPTIONS), caller_metadata)


def _make_dialer(target: Target) -> Dialer:
    certificates = tls.load_certificates()
    context = None if certificates is None else certificates.get_client_context
    dialer = SocketDialer(target, MESSAGE_BYTES_MAX, DEFAULTS, context, None)
    if transport.get_transport() == "local":
        return LocalDialer(NETWORK.get(), MESSAGE_BYTES_MAX, dialer)
    if target.is_local:
        raise ValueError(f"{target.text!r} needs {transport.VARIABLE}=local")
    return dialer
