"""Charges TLS handshakes with the processor time that they take, while they are made.

asyncio's transports make them out of our sight; an `ssl.SSLObject` of ours measures each step, for the handshake that
is current in its context: transports call back in the context in which they were made.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from contextvars import ContextVar
from time import thread_time

CURRENT: ContextVar[Handshake | None] = ContextVar("handshake", default=None)


class Handshake:
    """One handshake, for which `reserved_s` were charged before it began."""

    def __init__(self, charge: Callable[[float], None] | None = None, reserved_s: float = 0.0) -> None:
        """`charge` is told what it costs beyond, as it goes on; None where nobody is charged."""
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
