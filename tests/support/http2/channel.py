"""A channel whose connections speak HTTP/2 over sockets."""

import ssl
from collections.abc import Callable

from services.runtime.calls.addresses import parse_target
from services.runtime.calls.channel import DialingChannel
from services.runtime.http2.dialer import SocketDialer
from services.runtime.http2.limits import DEFAULTS, Limits


class Channel(DialingChannel):
    def __init__(
        self,
        target: str,
        *,
        message_bytes_max: int,
        context: Callable[[], ssl.SSLContext] | None = None,
        server_name: str | None = None,
        limits: Limits = DEFAULTS,
    ) -> None:
        """`server_name` is the name in the server's certificate if that is not the host."""
        super().__init__(SocketDialer(parse_target(target), message_bytes_max, limits, context, server_name))
