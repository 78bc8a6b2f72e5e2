"""Reads frames: DATA goes to its stream, header blocks in our own format to the connection, the rest to `h2`, in order.

Frames are handled for one turn of the loop, and the rest waits for the next, so that a connection with expensive frames
delays only itself.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from h2.errors import ErrorCodes
from h2.exceptions import FlowControlError, FrameDataMissingError, FrameTooLargeError, ProtocolError

from services.runtime.calls.ends import Compressed, Oversized
from services.runtime.http2 import frames, limits
from services.runtime.http2.limits import PeerWatch, RateExceeded
from services.runtime.http2.stream import Stream

if TYPE_CHECKING:
    from services.runtime.http2.connection import Connection


PIECE_BYTES = 8 * 1024
"""Bytes of DATA between two checks of the clock; any other frame may be expensive."""


class FrameReader:
    def __init__(self, connection: Connection, watch: PeerWatch, *, preface_bytes: int) -> None:
        self.rest = b""
        self._connection = connection
        self._watch = watch
        self._preface_left = preface_bytes
        self._has_settings = False
        self._is_in_headers = False
        self._window_bytes = limits.CONNECTION_WINDOW_BYTES
        self._owed_bytes = 0

    def receive_data(self, data: bytes) -> bool:
        """Handle input for one turn; return whether complete frames are left.

        Raises:
            ProtocolError: The peer breaks a rule.
        """
        if self._preface_left:
            # h2 compares the received part of the preface, however short.
            size = min(self._preface_left, len(data))
            self._preface_left -= size
            self._connection.h2.receive_data(data[:size])
            data = data[size:]
        if self.rest:
            data = self.rest + data
        return self._handle_frames(data)

    def _handle_frames(self, data: bytes) -> bool:
        """Handle complete frames and keep the rest; return whether the rest may contain more."""
        connection = self._connection
        start, size, streams = 0, len(data), connection.streams
        until_s, next_look = 0.0, PIECE_BYTES
        while size - start >= frames.HEAD_BYTES:
            high, low, kind, flags, stream_id = frames.unpack_head(data, start)
            length = high << 16 | low
            end = start + frames.HEAD_BYTES + length
            if length > limits.FRAME_BYTES_MAX:
                raise FrameTooLargeError(f"a frame of {length} bytes")
            if end > size:
                break
            stream_id &= frames.LAST_STREAM_ID  # the first bit is reserved, and ignored
            stream = streams.get(stream_id) if kind == frames.DATA else None
            if stream is not None and stream.is_remote_open and not self._is_in_headers:
                self._handle_data(stream, data, start + frames.HEAD_BYTES, end, flags)
            else:
                self._handle_other(kind, flags, stream_id, data, start, end)
                next_look = start
            start = end
            if start > next_look:
                next_look = start + PIECE_BYTES
                until_s = until_s or perf_counter() + connection.limits.turn_s
                if perf_counter() > until_s:
                    self.rest = data[start:]
                    return True
        self.rest = data[start:]
        return False

    # DATA frames.

    def _handle_data(self, stream: Stream, data: bytes, start: int, end: int, flags: int) -> None:
        length = end - start
        self._count_data(length)
        if not stream.count_received(length):
            self._connection.fail_stream(stream, ErrorCodes.FLOW_CONTROL_ERROR)
            return
        if flags & frames.PADDED:
            if not length or data[start] >= length:
                raise ProtocolError("a frame's padding is longer than the frame")
            stream.return_bytes(data[start] + 1)
            start, end = start + 1, end - data[start]
        if stream.length_left is not None:
            stream.length_left -= end - start
            if stream.length_left < 0:
                self._connection.fail_stream(stream, ErrorCodes.PROTOCOL_ERROR)
                return
        if start < end:
            try:
                stream.receive_data(data, start, end)
            except (Oversized, Compressed) as error:
                self._connection.on_bad_message(stream, error)
                return
        elif not flags & frames.END_STREAM:
            self._connection.control.spend_one()
        if flags & frames.END_STREAM and stream.id in self._connection.streams:
            self._connection.h2.note_received_end(stream.id)
            self._connection.finish_remote(stream.id)

    def _count_data(self, length: int) -> None:
        self._window_bytes -= length
        if self._window_bytes < 0:
            raise FlowControlError("more bytes than the connection's window allows")
        self._owed_bytes += length
        if self._owed_bytes >= limits.CONNECTION_WINDOW_BYTES // 4:
            self._window_bytes += self._owed_bytes
            self._connection.out.write(frames.encode_window_update(0, self._owed_bytes))
            self._owed_bytes = 0

    # Header blocks.

    def _accept_headers(self, stream_id: int, flags: int, data: bytes, start: int, end: int) -> bool:
        """Pass a complete header block to the connection; return whether it was accepted."""
        if flags & ~frames.END_STREAM != frames.END_HEADERS or self._is_in_headers or not self._has_settings:
            return False
        if not self._connection.accept_headers(stream_id, data[start:end], is_end=bool(flags & frames.END_STREAM)):
            return False
        self._check_control_backlog()
        return True

    # All other frames.

    def _handle_other(self, kind: int, flags: int, stream_id: int, data: bytes, start: int, end: int) -> None:
        """Handle the frame data[start:end], which is not DATA of an open stream."""
        payload = start + frames.HEAD_BYTES
        if kind == frames.DATA and not self._is_in_headers and self._connection.h2.has_reset(stream_id):
            self._count_data(end - payload)  # h2 would reset the stream again for each
        elif kind == frames.HEADERS and self._accept_headers(stream_id, flags, data, payload, end):
            pass
        elif kind == frames.DATA or self._is_for_h2(kind, flags, stream_id):
            self._pass_to_h2(frames.correct_frame(kind, flags, data[start:end]))
        elif kind == frames.GOAWAY:
            self._handle_goaway(stream_id, data, payload, end - payload)

    def _is_for_h2(self, kind: int, flags: int, stream_id: int) -> bool:
        """Return whether h2 gets the frame; a GOAWAY would make it end streams that may continue."""
        if not self._has_settings and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ProtocolError("the first frame is not SETTINGS")
        self._has_settings = True
        if kind == frames.CONTINUATION and not self._is_in_headers:
            raise ProtocolError("a CONTINUATION frame without a header block")
        if kind in frames.OF_HEADERS:
            self._is_in_headers = not flags & frames.END_HEADERS
            if not self._is_in_headers:
                self._connection.h2.note_foreign_block()
            self._watch.note_header_block(is_open=self._is_in_headers)
        elif kind == frames.GOAWAY and not self._is_in_headers:
            return False
        elif kind == frames.PRIORITY or (kind in (frames.PING, frames.SETTINGS) and not flags & frames.ACK):
            self._connection.control.spend_one()
        elif kind != frames.RST_STREAM or stream_id not in self._connection.streams:
            self._connection.idle_frames.spend_one()
            if kind == frames.RST_STREAM and self._connection.h2.is_idle(stream_id):
                raise ProtocolError("a RST_STREAM frame of a stream that was never opened")
            # Frames of unknown kinds are ignored, except within a header block.
            return kind <= frames.CONTINUATION or self._is_in_headers
        return True

    def _handle_goaway(self, stream_id: int, data: bytes, start: int, length: int) -> None:
        if stream_id:
            raise ProtocolError("a GOAWAY frame on a stream")
        if length < 8:
            raise FrameDataMissingError("a GOAWAY frame is too short")
        last_stream_id = int.from_bytes(data[start : start + 4]) & frames.LAST_STREAM_ID
        self._connection.on_goaway(last_stream_id, int.from_bytes(data[start + 4 : start + 8]))

    def _pass_to_h2(self, frame: bytes) -> None:
        """Handle a frame's events before the next frame, because they may remove the stream."""
        connection = self._connection
        events = connection.h2.receive_data(frame)
        # Settings are confirmed before anything that they allow is sent.
        connection.out.write_h2()
        for event in events:
            connection.dispatch_event(event)
        connection.out.write_h2()
        self._check_control_backlog()

    def _check_control_backlog(self) -> None:
        if self._connection.out.has_control_backlog:
            raise RateExceeded("it reads nothing and asks for answers")
