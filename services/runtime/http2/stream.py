"""One stream: DATA frames to messages and back, with flow control.

Input waits in `inbox` or goes to `take`; output waits in the backlog while the peer's window or the socket is full.

https://www.rfc-editor.org/rfc/rfc9113#section-5.2
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from services.runtime.calls.ends import Compressed, Inbox, Oversized
from services.runtime.calls.metadata import Headers
from services.runtime.http2 import frames, limits
from services.runtime.http2.outgoing import FrameWriter

if TYPE_CHECKING:
    from h2.stream import H2Stream

    from services.runtime.http2.outgoing import FrameWriter


class StreamOwner(Protocol):
    """The part of a connection that its streams use."""

    out: FrameWriter

    def finish_local(self, stream: Stream) -> None:
        """Record that the last frame of `stream` is written."""
        ...

    def end_stream(self, stream: Stream, trailers: Headers) -> None:
        """End our side of `stream`."""
        ...


class Stream(Inbox):
    __slots__ = (
        "_assembling",
        "_backlog",
        "_connection",
        "_end",
        "_out",
        "_owed_bytes",
        "_room",
        "_state",
        "_window_bytes",
        "id",
        "is_bounded",
        "is_local_open",
        "is_remote_open",
        "length_left",
        "message_bytes_max",
        "unread_bytes",
    )

    def __init__(self, connection: StreamOwner, stream_id: int, state: H2Stream, message_bytes_max: int) -> None:
        super().__init__()
        self.id = stream_id
        self.message_bytes_max = message_bytes_max
        self.is_remote_open = True
        """Whether the peer may send more, and our window is still extended."""
        self.unread_bytes = 0
        """Bytes of messages that wait for their reader."""
        self._window_bytes = limits.WINDOW_BYTES
        """Bytes that the peer may still send."""
        self._owed_bytes = 0
        """Bytes read but not yet returned to the window."""
        self.is_bounded = False
        """Whether the sender may use only one window, because the call is not admitted yet."""
        self.is_local_open = True
        self.length_left: int | None = None
        """Bytes of DATA left of the peer's announced content-length; None without one."""
        self._connection = connection
        self._out = connection.out
        self._state = state
        self._assembling = bytearray()
        self._backlog = bytearray()
        self._room: asyncio.Future[None] | None = None
        self._end: Headers | None = None
        """Trailers to send after the backlog; if empty, the last frame ends our side."""

    # Input.

    def receive_data(self, data: bytes, start: int, end: int) -> None:
        """Process data[start:end], the payload of a DATA frame; raises Oversized or Compressed."""
        size = end - start
        if not self._assembling and size >= frames.PREFIX_BYTES:
            compressed, length = frames.unpack_prefix(data, start)
            if length == size - frames.PREFIX_BYTES and not compressed and length <= self.message_bytes_max:
                # One message in one frame, as in nearly every frame of a stream of deltas.
                if self.take is not None:
                    self.take(data[start + frames.PREFIX_BYTES : end])
                    self.return_bytes(size)
                else:
                    self.unread_bytes += size
                    self.put_message(data[start + frames.PREFIX_BYTES : end])
                return
        self._assembling += memoryview(data)[start:end]
        self.unread_bytes += size
        self._assemble_messages()
        if not (self.inbox or self.is_bounded):
            # A message larger than the window arrives only as the window opens; its size has a separate limit.
            self._release_read(self.unread_bytes)

    def _assemble_messages(self) -> None:
        assembling, start = self._assembling, 0
        while len(assembling) - start >= frames.PREFIX_BYTES:
            compressed, length = frames.unpack_prefix(assembling, start)
            if compressed:
                raise Compressed
            if length > self.message_bytes_max:
                raise Oversized
            end = start + frames.PREFIX_BYTES + length
            if end > len(assembling):
                break
            message = bytes(memoryview(assembling)[start + frames.PREFIX_BYTES : end])
            start = end
            if self.take is not None:
                self.take(message)
            else:
                self.put_message(message)
        del assembling[:start]

    def pop_message(self) -> bytes:
        message = self.take_first()
        size = len(message) + frames.PREFIX_BYTES
        unread = self.unread_bytes
        self._release_read(min(size, unread) if self.inbox else unread)
        return message

    def lift_bound(self) -> None:
        if self.is_bounded:
            self.is_bounded = False
            if not self.inbox:
                self._release_read(self.unread_bytes)

    @property
    def is_cut(self) -> bool:
        return bool(self._assembling)

    # Flow control of the input.

    def count_received(self, size: int) -> bool:
        """Count bytes, including padding; return False if the peer exceeded its window."""
        self._window_bytes -= size
        return self._window_bytes >= 0

    def return_bytes(self, size: int) -> None:
        """Return bytes to the window; the peer is notified when they reach half of it."""
        self._owed_bytes += size
        if self._owed_bytes >= limits.WINDOW_BYTES // 2 and self.is_remote_open:
            self._window_bytes += self._owed_bytes
            self._out.write(frames.encode_window_update(self.id, self._owed_bytes))
            self._owed_bytes = 0

    def _release_read(self, size: int) -> None:
        self.unread_bytes -= size
        self.return_bytes(size)

    # Output.

    def send(self, message: bytes) -> bool:
        """Send a message; False if `wait_until_drained` is due."""
        out, state = self._out, self._state
        size = len(message)
        length = size + frames.PREFIX_BYTES
        if (
            self._backlog
            or out.is_full
            or length > limits.FRAME_BYTES_MAX
            or length > state.outbound_flow_control_window
            or length > out.h2.outbound_flow_control_window
        ):
            return self._defer_message(message)
        if self.is_local_open:
            state.outbound_flow_control_window -= length
            out.h2.outbound_flow_control_window -= length
            # As encode_message_head does, without the call, because every delta comes here.
            out.write(
                frames.pack_message_head(length >> 16, length & 0xFFFF, frames.DATA, 0, self.id, 0, size), message
            )
            out.has_data = True
        return True

    def send_last(self, message: bytes) -> None:
        """Send a message and end our side, in one frame if it fits."""
        out, state = self._out, self._state
        length = len(message) + frames.PREFIX_BYTES
        room = min(limits.FRAME_BYTES_MAX, state.outbound_flow_control_window, out.h2.outbound_flow_control_window)
        if self._backlog or out.is_full or length > room or not self.is_local_open:
            self.send(message)
            self.end_local()
            return
        state.outbound_flow_control_window -= length
        out.h2.outbound_flow_control_window -= length
        out.write(frames.encode_message_head(self.id, len(message), frames.END_STREAM), message)
        out.has_data = True
        self.is_local_open = False
        self._connection.finish_local(self)

    def end_local(self, trailers: Headers | None = None) -> None:
        """End our side after the backlog."""
        if not self.is_local_open or self._end is not None:
            return
        self._end = trailers or []
        if not self._backlog:
            self._send_end()

    async def wait_until_drained(self) -> None:
        """Wait until the socket has everything or the stream is closed; only one task may wait."""
        while self._backlog and self.is_local_open:
            self._room = asyncio.get_running_loop().create_future()
            try:
                await self._room
            finally:
                self._room = None

    def _defer_message(self, message: bytes) -> bool:
        if not self.is_local_open:
            return True
        self._backlog += frames.encode_prefix(len(message))
        self._backlog += message
        self.send_backlog()
        return len(self._backlog) < limits.BACKLOG_BYTES

    def send_backlog(self) -> None:
        out, state, backlog = self._out, self._state, self._backlog
        while backlog and not out.is_full:
            size = min(
                len(backlog),
                limits.FRAME_BYTES_MAX,
                state.outbound_flow_control_window,
                out.h2.outbound_flow_control_window,
            )
            if size <= 0:
                break
            state.outbound_flow_control_window -= size
            out.h2.outbound_flow_control_window -= size
            out.write(frames.encode_data_head(self.id, size), bytes(memoryview(backlog)[:size]))
            out.has_data = True
            del backlog[:size]
        if backlog:
            out.blocked[self.id] = self.send_backlog
            out.blocked.move_to_end(self.id)
            return
        out.blocked.pop(self.id, None)
        self._wake_sender()
        if self._end is not None:
            self._send_end()

    def _send_end(self) -> None:
        assert self._end is not None, "called when there is an end"
        self.is_local_open = False
        self._connection.end_stream(self, self._end)

    def _wake_sender(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    # End of the stream.

    def close(self) -> None:
        self.is_local_open = self.is_remote_open = False
        self.is_ended = True
        self._backlog.clear()
        self._assembling.clear()
        self._out.blocked.pop(self.id, None)
        self._wake_sender()
        self.wake_reader()
