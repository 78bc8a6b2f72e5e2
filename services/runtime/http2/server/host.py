"""What a server and its connections share: what they are told, which there are, how many handlers run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.runtime.http2.limits import DEFAULTS, Limits
from services.runtime.in_flight import InFlightCounter

if TYPE_CHECKING:
    from services.runtime.http2.server.connection import ServerConnection


class Host:
    """Belongs to one server."""

    def __init__(self, message_bytes_max: int, connection_age_s: float, limits: Limits = DEFAULTS) -> None:
        self.message_bytes_max = message_bytes_max
        self.limits = limits
        self.connection_age_s = connection_age_s
        """A connection ends then, in good order, so that clients find new replicas; 0: never."""
        self.connections: set[ServerConnection] = set()
        self.is_stopping = False
        self.calls = InFlightCounter()
        """Whose handlers run."""

    @property
    def takes_no_more(self) -> bool:
        """Whether a connection that was just accepted, or has just ended its TLS handshake, comes too late."""
        return self.is_stopping or len(self.connections) >= self.limits.connections_max
