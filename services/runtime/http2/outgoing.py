"""Outgoing frames: all output of one wake-up leaves in one write; blocked streams take turns."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from services.runtime.http2 import limits
from services.runtime.http2.h2_state import H2State


class FrameWriter:
    """A connection's output; writes after `stop` are dropped."""

    def __init__(self, h2: H2State) -> None:
        self.h2 = h2
        self.is_full = False
        self.has_data = False
        """Whether DATA waits for the next write."""
        self.data_writes = 0
        """Number of writes with DATA."""
        self.blocked: OrderedDict[int, Callable[[], None]] = OrderedDict()
        """`send_backlog` of blocked streams by id, the one waiting longest first."""
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._pieces: list[bytes] = []
        self._is_flushing = False
        self._unsent_control_bytes = 0
        """Bytes of frames other than DATA since the socket became full."""

    def start(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def stop(self) -> None:
        self._transport = None
        self._pieces.clear()
        self.blocked.clear()

    def write(self, *pieces: bytes) -> None:
        """Send whole frames together with this wake-up's output."""
        self._pieces += pieces
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush_all)
        elif len(self._pieces) > limits.OUT_PIECES_MAX:
            # This shows whether the socket accepts them; if not, later data waits with its stream.
            self.flush_all(is_last=False)

    def write_h2(self) -> None:
        if data := self.h2.data_to_send():
            self.write_control(data)

    def write_control(self, data: bytes) -> None:
        if self.is_full:
            # Windows bound the data of streams; this counter bounds the answers that the peer requests.
            self._unsent_control_bytes += len(data)
        self.write(data)

    def flush_all(self, *, is_last: bool = True) -> None:
        """Write everything; with `is_last`, the next piece begins another wake-up's output."""
        self._is_flushing = self._is_flushing and not is_last
        pieces = self._pieces
        if pieces and self._transport is not None:
            self._pieces = []
            self._transport.write(b"".join(pieces))
            self.data_writes += self.has_data
            self.has_data = False

    @property
    def has_control_backlog(self) -> bool:
        """Whether the peer requests answers but does not read them."""
        return self._unsent_control_bytes > limits.CONTROL_BACKLOG_BYTES

    def resume_writing(self) -> None:
        self.is_full = False
        self._unsent_control_bytes = 0
        self.pump_blocked()

    def pump_blocked(self) -> None:
        """Let each blocked stream send once, while there is room."""
        for _ in range(len(self.blocked)):
            if self.is_full or self.h2.outbound_flow_control_window <= 0 or not self.blocked:
                return
            next(iter(self.blocked.values()))()

    def pump_stream(self, stream_id: int) -> None:
        if (pump := self.blocked.get(stream_id)) is not None:
            pump()
