"""What a server and its connections share: what they are told, which there are, how many handlers run."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from services.runtime.http2.limits import DEFAULTS, Limits

if TYPE_CHECKING:
    from services.runtime.http2.server_connection import ServerConnection


class Host:
    """Belongs to one server."""

    def __init__(self, message_bytes_max: int, connection_age_s: float, limits: Limits = DEFAULTS) -> None:
        self.message_bytes_max = message_bytes_max
        self.limits = limits
        self.connection_age_s = connection_age_s
        """A connection ends then, in good order, so that clients find new replicas; 0: never."""
        self.connections: set[ServerConnection] = set()
        self.is_stopping = False
        self._calls = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @property
    def takes_no_more(self) -> bool:
        """Whether a connection that was just accepted, or has just ended its TLS handshake, comes too late."""
        return self.is_stopping or len(self.connections) >= self.limits.connections_max

    def call_began(self) -> None:
        """One more handler runs."""
        self._calls += 1
        self._idle.clear()

    def call_ended(self) -> None:
        """One less."""
        self._calls -= 1
        if not self._calls:
            self._idle.set()

    async def wait_for_calls(self, wait_s: float) -> None:
        """Wait until no handler runs, or `wait_s` are over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._idle.wait()
