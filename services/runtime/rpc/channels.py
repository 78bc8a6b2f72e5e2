"""Channels to peers; no other file creates them.

Their calls name the calling service and the current identity, and carry users' credentials only where they are needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from services.runtime.auth.authenticator import CALLER, TOKEN
from services.runtime.auth.identity import forward_identity
from services.runtime.auth.settings import AuthSettings
from services.runtime.calls.addresses import Target, parse_target
from services.runtime.calls.channel import DialingChannel, FindKey
from services.runtime.calls.ends import Dialer
from services.runtime.http2.dialer import SocketDialer
from services.runtime.http2.limits import DEFAULTS
from services.runtime.local.network import NETWORK, LocalDialer
from services.runtime.process import transport
from services.runtime.rpc.call_ids import CREDENTIALS, takes_credentials

MESSAGE_BYTES_MAX = 64 * 1024 * 1024

EDGE_MESSAGE_BYTES_MAX = 4 * 1024 * 1024
"""Largest message of a caller outside the suite."""

OPTIONS: list[tuple[str, int]] = [
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    # A restarting peer returns within a second or so; the default of up to 120 s would look like an outage.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # The suite's own traffic never uses the machine's http_proxy.
    ("grpc.enable_http_proxy", 0),
    # A stream with a stalled reader holds 64 KiB here; with this probe it grew to 5 MB (grpcio 1.85).
    ("grpc.http2.bdp_probe", 0),
    # Without this, channels of one process to one address share a connection.
    ("grpc.use_local_subchannel_pool", 1),
]


def find_chat(request: Any) -> str:
    """Return the chat of a call to memory; empty if it names none."""
    return getattr(getattr(request, "append", request), "chat_id", "")


FIND_KEY: dict[str, FindKey] = {"memory": find_chat}
"""By service, the key by which its callers choose a replica. One replica of memory serves a chat from its cache, where
several would read from the database what another one has written."""


def open_channel(
    address: str, caller_metadata: CallerMetadata = (), *, find_key: FindKey | None = None
) -> grpc.aio.Channel:
    """Return a channel to `address`, which the caller closes.

    Of several replicas, one gets all calls with the same key. Addresses are host:port, unix:/path, several with commas,
    dns:///host:port for all replicas of a name, or local:name on the transport `local`; raises ValueError for others,
    OSError if the certificates are unusable.
    """
    if transport.get_transport() != "grpcio":
        return AuthenticatedChannel(DialingChannel(_make_dialer(parse_target(address)), find_key), caller_metadata)
    if "," in address:
        # grpcio accepts lists of IP addresses only, and continues to call a replica that is stopping.
        raise ValueError(f"{address!r}: several addresses need {transport.VARIABLE}=h2")
    return AuthenticatedChannel(grpc.aio.insecure_channel(address, options=OPTIONS), caller_metadata)


def _make_dialer(target: Target) -> Dialer:
    certificates = transport.load_certificates()
    context = None if certificates is None else certificates.get_client_context
    dialer = SocketDialer(target, MESSAGE_BYTES_MAX, DEFAULTS, context, None)
    if transport.get_transport() == "local":
        return LocalDialer(NETWORK.get(), MESSAGE_BYTES_MAX, dialer)
    if target.is_local:
        raise ValueError(f"{target.text!r} needs {transport.VARIABLE}=local")
    return dialer


CallerMetadata = tuple[tuple[str, str], ...]
"""Metadata of every call of a service; empty if a certificate identifies it, or nothing does."""


def build_caller_metadata(settings: AuthSettings, service: str) -> CallerMetadata:
    return ((CALLER, service), (TOKEN, settings.internal_token)) if settings.internal_token else ()


class AuthenticatedChannel(grpc.aio.Channel):
    def __init__(self, channel: grpc.aio.Channel, caller_metadata: CallerMetadata) -> None:
        self._channel = channel
        self._caller_metadata = caller_metadata

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(method, self._channel.unary_unary(method, *args, **kwargs))

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(method, self._channel.unary_stream(method, *args, **kwargs))

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(method, self._channel.stream_unary(method, *args, **kwargs))

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return self._with_metadata(method, self._channel.stream_stream(method, *args, **kwargs))

    async def __aenter__(self) -> AuthenticatedChannel:
        await self._channel.__aenter__()
        return self

    async def __aexit__(self, *exception: Any) -> None:
        await self._channel.__aexit__(*exception)

    async def close(self, grace: float | None = None) -> None:
        await self._channel.close(grace)

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        return self._channel.get_state(try_to_connect)

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        await self._channel.wait_for_state_change(last_observed_state)

    async def channel_ready(self) -> None:
        await self._channel.channel_ready()

    def _with_metadata(self, method: str, start: Callable[..., Any]) -> Callable[..., Any]:
        takes_all = takes_credentials(method)

        def start_call(request: Any = None, *, metadata: Any = None, **settings: Any) -> Any:
            passed = metadata or ()
            if not takes_all:
                passed = [pair for pair in passed if not pair[0].startswith(CREDENTIALS)]
            return start(request, metadata=(*passed, *self._caller_metadata, *forward_identity()), **settings)

        return start_call
