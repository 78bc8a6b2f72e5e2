"""One HTTP/2 connection, the same at both ends: handles the events that `h2` derives from frames.

`FrameReader` cuts the input into frames, `FrameWriter` collects the output.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, cast

import structlog
from h2.errors import ErrorCodes
from h2.events import (
    Event,
    PingAckReceived,
    RemoteSettingsChanged,
    SettingsAcknowledged,
    StreamEnded,
    StreamReset,
    WindowUpdated,
)
from h2.exceptions import ProtocolError, StreamClosedError

from services.runtime.calls.ends import Compressed, Oversized
from services.runtime.calls.metadata import Headers
from services.runtime.http2 import frames, limits
from services.runtime.http2.h2_state import H2State
from services.runtime.http2.header_blocks import encode_block
from services.runtime.http2.incoming import FrameReader
from services.runtime.http2.limits import Limits, PeerWatch, RateExceeded, RateLimit
from services.runtime.http2.outgoing import FrameWriter
from services.runtime.http2.stream import Stream
from services.runtime.http2.tls import has_agreed

log = structlog.get_logger()


class Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, *, client_side: bool, connection_limits: Limits) -> None:
        self.limits = connection_limits
        self.h2 = H2State(client_side=client_side, streams_max=connection_limits.streams_max)
        out = self.out = FrameWriter(self.h2)
        self.streams: dict[int, Stream] = {}
        """Streams that can receive or send, by id."""
        # A peer may answer DATA with a ping, which measures the bandwidth, and two window updates
        # (https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md: pings after DATA are no strikes).
        self.control = RateLimit(
            "control frames", limits.CONTROL_BURST, connection_limits.control_per_s, lambda: out.data_writes
        )
        self.idle_frames = RateLimit(
            "frames without effect", limits.IDLE_FRAMES_BURST, limits.IDLE_FRAMES_PER_S, lambda: 2 * out.data_writes
        )
        self._next_turn: asyncio.Handle | None = None
        """Set while input waits for a later turn; nothing is read in the meantime."""
        self.is_made = False
        self.is_lost = False
        self._is_gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._watch = PeerWatch(
            connection_limits,
            may_ping=lambda: self.may_ping,
            ping=lambda: self.send_ping(b"headrace"),
            too_slow=partial(self._give_up, "connection refused", error="too slow"),
            gone=partial(self._give_up, "peer is gone"),
        )
        self.incoming = FrameReader(self, self._watch, preface_bytes=0 if client_side else frames.PREFACE_BYTES)
        self._abort_timer: asyncio.TimerHandle | None = None

    # Differences between the two ends.

    @property
    def may_ping(self) -> bool:
        return True

    def on_connected(self) -> None:
        """Called after our preface is sent."""

    def on_settings(self) -> None:
        """Called at the peer's first settings."""

    def handle_event(self, event: Event) -> None:
        """Handle an event that occurs only at this end."""

    def on_goaway(self, last_stream_id: int, error_code: int) -> None:
        """Called when the peer refuses the streams after `last_stream_id`."""

    def on_remote_end(self, stream: Stream) -> None:
        """Called when the peer ends its side."""

    def on_reset(self, stream: Stream, error_code: int) -> None:
        """Called when the peer ends both sides."""

    def on_bad_message(self, stream: Stream, error: Oversized | Compressed) -> None:
        """Called for a message that is refused."""

    def on_lost(self, error: Exception | None) -> None:
        """Called when the connection is lost or abandoned."""

    def end_stream(self, stream: Stream, trailers: Headers) -> None:
        """End our side of `stream`."""
        raise NotImplementedError

    def accept_headers(self, stream_id: int, block: bytes, *, is_end: bool) -> bool:
        """Process a header block in our own format; return False to leave it to `h2`."""
        raise NotImplementedError

    # Callbacks of the transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport has the methods, but not the base class
        self.transport = cast("asyncio.Transport", transport)
        self.is_made = True
        if not has_agreed(self.transport):
            log.info("connection refused", peer=self.peer, error="no HTTP/2")
            self._stop_traffic(ConnectionRefusedError("the peer did not agree to HTTP/2 (ALPN)"))
            self.transport.abort()
            return
        self.out.start(self.transport)
        self.h2.initiate_connection()
        self.out.write_h2()
        self.out.write(frames.encode_window_update(0, limits.CONNECTION_WINDOW_BYTES - 65_535))
        self._watch.start_watching()
        self.on_connected()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_traffic(exc)
        if self._abort_timer is not None:
            self._abort_timer.cancel()
        self._is_gone.set()

    def _stop_traffic(self, error: Exception | None) -> None:
        if self.is_lost:
            return
        self.is_lost = True
        self._watch.stop_watching()
        if self._next_turn is not None:
            self._next_turn.cancel()
        self.out.stop()
        self.on_lost(error)
        self.streams.clear()

    def pause_writing(self) -> None:
        self.out.is_full = True

    def resume_writing(self) -> None:
        self.out.resume_writing()

    def eof_received(self) -> None:
        # No gRPC client closes only its side, and a stream that ended later would go unnoticed.
        self.close_gracefully()

    def data_received(self, data: bytes) -> None:
        if self.is_lost:
            return  # data that TLS still held
        self._watch.reads += 1
        if self._next_turn is not None:
            self.incoming.rest += data  # data that TLS still held
        else:
            self.handle_input(data)

    def handle_input(self, data: bytes) -> None:
        """Handle input for one turn."""
        try:
            if self.incoming.receive_data(data):
                self.wait_for_turn(0)
        except ProtocolError as error:
            self.refuse_peer(error)

    @property
    def waits_for_turn(self) -> bool:
        return self._next_turn is not None

    def wait_for_turn(self, wait_s: float) -> None:
        """Pause reading for `wait_s` seconds, at least one turn of the loop; then continue with the rest of the
        input."""
        if self.is_lost or self.transport.is_closing():
            return
        if self._next_turn is not None:
            self._next_turn.cancel()
        self.transport.pause_reading()
        take_turn = self._take_turn
        self._next_turn = self._loop.call_later(wait_s, take_turn) if wait_s else self._loop.call_soon(take_turn)

    def _take_turn(self) -> None:
        self._next_turn = None
        rest, self.incoming.rest = self.incoming.rest, b""
        self.handle_input(rest)
        if not (self.waits_for_turn or self.is_lost or self.transport.is_closing()):
            self.transport.resume_reading()

    def refuse_peer(self, error: ProtocolError) -> None:
        log.info("connection refused", peer=self.peer, error=str(error), code=int(error.error_code))
        # h2 has already written a GOAWAY for its own errors; another one after it has no effect.
        self.out.write_h2()
        self.out.write(frames.encode_goaway(self.h2.highest_inbound_stream_id, error.error_code))
        self.close_gracefully(error)

    # Events from h2.

    def dispatch_event(self, event: Event) -> None:
        match event:
            case WindowUpdated(stream_id=stream_id):
                self.out.pump_stream(stream_id) if stream_id else self.out.pump_blocked()
            case StreamEnded(stream_id=stream_id):
                self.finish_remote(stream_id)
            case StreamReset(stream_id=stream_id, error_code=error_code):
                if (stream := self.streams.pop(stream_id, None)) is not None:
                    self.h2.forget_stream(stream_id)
                    stream.close()
                    self.on_reset(stream, int(error_code))
            case RemoteSettingsChanged():
                if self._watch.note_settings():
                    self.on_settings()
                if len(self.h2.remote_settings) > limits.SETTINGS_KEPT:
                    raise RateExceeded("more settings than there are")
                self.out.pump_blocked()
            case PingAckReceived():
                self._watch.note_ping_answer()
                self.handle_event(event)
            case SettingsAcknowledged():
                self.h2.forget_table()
            case _:
                self.handle_event(event)

    def finish_remote(self, stream_id: int) -> None:
        """Record the peer's last frame, which `h2` has seen."""
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        if stream.length_left:
            # https://www.rfc-editor.org/rfc/rfc9113#section-8.1.1
            self.fail_stream(stream, ErrorCodes.PROTOCOL_ERROR)
            return
        stream.is_remote_open = False
        stream.is_ended = True
        stream.wake_reader()
        self.on_remote_end(stream)
        self.forget_if_done(stream)

    # Ends of streams.

    def send_headers(self, stream_id: int, headers: Headers, *, end: bool = False) -> None:
        self.out.write_control(self.h2.send_headers_of(stream_id, encode_block(headers), is_end=end))

    def finish_local(self, stream: Stream) -> None:
        """Record that the last frame of `stream` is written."""
        self.h2.note_sent_end(stream.id)
        self.forget_if_done(stream)

    def reset_stream(self, stream: Stream, error_code: ErrorCodes) -> None:
        if self.streams.pop(stream.id, None) is None:
            return
        if not self.is_lost:
            # h2 may have closed it in this same wake-up.
            with suppress(StreamClosedError):
                self.h2.reset_stream(stream.id, error_code)
            self.h2.forget_stream(stream.id)
            self.out.write_h2()
        stream.close()

    def fail_stream(self, stream: Stream, error_code: ErrorCodes) -> None:
        """Reset a stream on which the peer broke a rule, and end its call."""
        self.reset_stream(stream, error_code)
        self.on_reset(stream, error_code)

    def cancel_stream(self, stream_id: int) -> None:
        if (stream := self.streams.get(stream_id)) is not None:
            self.reset_stream(stream, ErrorCodes.CANCEL)

    def forget_if_done(self, stream: Stream) -> None:
        if not (stream.is_remote_open or stream.is_local_open) and self.streams.pop(stream.id, None) is not None:
            self.h2.forget_stream(stream.id)
            self.out.blocked.pop(stream.id, None)

    # End of the connection.

    def close_gracefully(self, error: Exception | None = None) -> None:
        """Close the socket once the output is sent, or after close_s."""
        if self.is_lost:
            return
        self.out.flush_all()
        if error is None:
            self.close_transport()
        else:
            self.transport.close()
        self._abort_timer = self._loop.call_later(self.limits.close_s, self.transport.abort)
        self._stop_traffic(error)

    def close_transport(self) -> None:
        self.transport.close()

    async def close(self) -> None:
        """Send GOAWAY and wait until the connection is closed."""
        if not self.is_lost:
            self.out.write(frames.encode_goaway(self.h2.highest_inbound_stream_id))
            self.close_gracefully()
        await self._is_gone.wait()

    # Properties of the peer.

    def _give_up(self, event: str, **fields: str) -> None:
        log.info(event, peer=self.peer, **fields)
        self.transport.abort()

    def send_ping(self, data: bytes) -> None:
        self.h2.ping(data)
        self.out.write_h2()

    @property
    def peer(self) -> str:
        name: Any = self.transport.get_extra_info("peername")
        if not isinstance(name, tuple):
            return f"unix:{name or ''}"
        host, port = str(name[0]), name[1]
        return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
