"""Limits for connections that have had no admitted call yet, counted per address.

A peer without a credential may use a small share of the processor, of memory and of connections. A connection belongs
to a stranger until its first call is admitted; then other limits apply. Peers on Unix sockets are no strangers.

TLS handshakes are charged for their processor time. asyncio's transports run them out of our sight, so our
`ssl.SSLObject` measures each step, for the current handshake of its context: transports call back in the context of
their creation.
"""

from __future__ import annotations

import ssl
import time
from collections import OrderedDict
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from time import thread_time
from typing import TYPE_CHECKING, Protocol

from services.runtime.calls.addresses import find_network
from services.runtime.http2.limits import CONNECTION_S, StrangerLimits

if TYPE_CHECKING:
    import asyncio


CURRENT: ContextVar[Handshake | None] = ContextVar("handshake", default=None)


class Handshake:
    """One handshake; `reserved_s` was charged before it began."""

    def __init__(self, charge: Callable[[float], None] | None = None, reserved_s: float = 0.0) -> None:
        """`charge` receives further costs as they arise; None if there is no one to charge."""
        self._charge = charge
        self._cpu_s = 0.0
        self.charged_s = reserved_s

    def note_step(self, cpu_s: float) -> None:
        self._cpu_s += cpu_s
        if self._charge is not None and self._cpu_s > self.charged_s:
            self._charge(self._cpu_s - self.charged_s)
            self.charged_s = self._cpu_s


class MeasuredSslObject(ssl.SSLObject):
    handshake: Handshake | None = None

    def do_handshake(self) -> None:
        self.handshake = CURRENT.get()
        began_s = thread_time()
        try:
            super().do_handshake()
        finally:
            if self.handshake is not None:
                self.handshake.note_step(thread_time() - began_s)


class Stranger(Protocol):
    """A connection without an admitted call."""

    transport: asyncio.Transport


class AddressShare:
    """The strangers of one address."""

    def __init__(self, limits: StrangerLimits) -> None:
        self._limits = limits
        self._connections: OrderedDict[Stranger, int] = OrderedDict()
        """The bytes that each one holds; the one that has been silent longest first."""
        self._held_bytes = 0
        self._left_s = limits.burst_s
        self._at_s = time.monotonic()

    def __len__(self) -> int:
        return len(self._connections)

    def add_connection(self, connection: Stranger) -> None:
        """Register a connection; if there are too many, the one that has been silent longest is closed."""
        if len(self) >= self._limits.connections_max:
            self.evict_one()
        self._connections[connection] = 0
        self.spend_time(CONNECTION_S)

    def remove_connection(self, connection: Stranger) -> None:
        self._held_bytes -= self._connections.pop(connection, 0)

    def evict_one(self) -> None:
        """Close the connection that has been silent longest; there must be one."""
        connection, held_bytes = self._connections.popitem(last=False)
        self._held_bytes -= held_bytes
        connection.transport.abort()

    def hold_bytes(self, connection: Stranger, held_bytes: int) -> bool:
        """Record how much a connection that has sent something holds now; return False if the address may not hold so
        much."""
        self._held_bytes += held_bytes - self._connections.pop(connection, 0)
        self._connections[connection] = held_bytes
        return self._held_bytes <= self._limits.bytes_max

    def spend_time(self, seconds: float) -> None:
        """Count processor seconds; a negative number returns them."""
        self._refill()
        self._left_s -= seconds

    def find_wait(self) -> float:
        """Return how many seconds input of the address must wait; 0 if it need not."""
        self._refill()
        return max(-self._left_s / self._limits.processor_share, 0.0)

    @property
    def is_unused(self) -> bool:
        self._refill()
        return not self._connections and self._left_s >= self._limits.burst_s

    def _refill(self) -> None:
        now_s = time.monotonic()
        earned_s = (now_s - self._at_s) * self._limits.processor_share
        self._left_s = min(self._limits.burst_s, self._left_s + earned_s)
        self._at_s = now_s


class Strangers:
    """The shares of all addresses of a server."""

    def __init__(self, limits: StrangerLimits) -> None:
        self._limits = limits
        self._shares: OrderedDict[str, AddressShare] = OrderedDict()

    def add_connection(self, connection: Stranger) -> AddressShare | None:
        """Return the share that `connection` belongs to; None if it is not a stranger's."""
        share = self._find_share(connection.transport.get_extra_info("peername"))
        if share is not None:
            share.add_connection(connection)
        return share

    def find_wait(self, peer: object) -> float:
        """Return how many seconds the peer's address must wait before anything begins; 0 if it need not."""
        share = self._find_share(peer)
        return 0.0 if share is None else share.find_wait()

    def begin_handshake(self, peer: object) -> Handshake | None:
        """Charge a TLS handshake that is about to begin; return None if the address's share is used up."""
        share = self._find_share(peer)
        if share is None:
            return Handshake()
        if share.find_wait():
            return None
        share.spend_time(self._limits.handshake_s)
        return Handshake(partial(self.spend_time, peer), self._limits.handshake_s)

    def spend_time(self, peer: object, seconds: float) -> None:
        """Count processor seconds for the address of `peer`."""
        # Looked up again, because the share that was charged before may be forgotten by now.
        if (share := self._find_share(peer)) is not None:
            share.spend_time(seconds)

    def evict_one(self) -> bool:
        """Close a stranger's connection, of the address with the most; return False if there is none."""
        share = max(self._shares.values(), key=len, default=None)
        if not share:
            return False
        share.evict_one()
        return True

    def _find_share(self, peer: object) -> AddressShare | None:
        """Return the share of a socket's address; None on a Unix socket."""
        if not isinstance(peer, tuple):
            return None
        # Two are checked for each new one, so that their number does not grow.
        for _ in range(min(2, len(self._shares))):
            address, share = self._shares.popitem(last=False)
            if not share.is_unused:
                self._shares[address] = share
        address = find_network(str(peer[0]))
        share = self._shares.get(address)
        if share is None:
            share = self._shares[address] = AddressShare(self._limits)
        return share
