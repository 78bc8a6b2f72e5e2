"""Frames out: what is written in one wake-up leaves in one write, and nothing waits for more.

Streams ask here whether the socket takes anything, and whether the connection's window does; those that must wait have
their turns when it opens again.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from services.runtime.http2 import limits
from services.runtime.http2.h2_state import H2State


class FrameWriter:
    """Belongs to one connection; what is written after `stop` goes nowhere."""

    def __init__(self, h2: H2State) -> None:
        self.h2 = h2
        self.is_full = False
        """The socket takes nothing more."""
        self.blocked: OrderedDict[int, Callable[[], None]] = OrderedDict()
        """`send_backlog` of each stream that has a backlog, by id; the stream whose turn is longest ago first."""
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._is_flushing = False
        self._unsent_control_bytes = 0
        """Bytes of frames other than DATA that were written since the socket has been full."""

    def start(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def stop(self) -> None:
        self._transport = None
        self._pieces.clear()
        self.blocked.clear()

    def write(self, *pieces: bytes) -> None:
        """Send whole frames, with everything else that is written in this wake-up."""
        self._pieces += pieces
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush_all)
        elif len(self._pieces) > limits.OUT_PIECES_MAX:
            # Now the socket says whether it takes them, and what comes next waits with its stream if it does not.
            self._hand_over()

    def write_h2(self) -> None:
        if said := self.h2.data_to_send():
            self.write_control(said)

    def write_control(self, said: bytes) -> None:
        """Send frames that no window holds back."""
        if self.is_full:
            # What streams send is bounded by their windows; this is bounded by how much the peer asks for.
            self._unsent_control_bytes += len(said)
        self.write(said)

    def flush_all(self) -> None:
        self._is_flushing = False
        self._hand_over()

    def _hand_over(self) -> None:
        pieces = self._pieces
        if pieces and self._transport is not None:
            self._pieces = []
            self._transport.write(b"".join(pieces))

    @property
    def has_control_backlog(self) -> bool:
        """Whether the peer reads nothing and asks for answers all the same."""
        return self._unsent_control_bytes > limits.CONTROL_BACKLOG_BYTES

    def resume_writing(self) -> None:
        self.is_full = False
        self._unsent_control_bytes = 0
        self.pump_blocked()

    def pump_blocked(self) -> None:
        """Let the blocked streams send, each once, as long as there is room."""
        for _ in range(len(self.blocked)):
            if self.is_full or self.h2.outbound_flow_control_window <= 0 or not self.blocked:
                return
            next(iter(self.blocked.values()))()

    def pump_stream(self, stream_id: int) -> None:
        if (pump := self.blocked.get(stream_id)) is not None:
            pump()
