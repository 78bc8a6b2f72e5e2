"""One HTTP/2 connection: what both of its ends have in common.

What is read in one wake-up is handled in one go, and what is written meanwhile leaves in one write. DATA frames of
open streams go to their streams directly; every other frame goes to `h2`, in the order of arrival.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from contextlib import suppress
from typing import Any, cast

import structlog
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.errors import ErrorCodes
from h2.events import Event, PingAckReceived, RemoteSettingsChanged, StreamEnded, StreamReset, WindowUpdated
from h2.exceptions import FlowControlError, FrameDataMissingError, FrameTooLargeError, ProtocolError, StreamClosedError
from h2.settings import SettingCodes, Settings
from h2.stream import StreamClosedBy

from services.runtime.http2 import frames, limits
from services.runtime.http2.limits import Limits
from services.runtime.http2.metadata import Headers
from services.runtime.http2.stream import Compressed, Oversized, Stream
from services.runtime.http2.tls import has_agreed
from services.runtime.http2.watch import Watch

log = structlog.get_logger()


class _Http2(H2Connection):
    MAX_CLOSED_STREAMS = limits.CLOSED_STREAMS_KEPT
    DEFAULT_MAX_HEADER_LIST_SIZE = limits.HEADERS_BYTES_TAKEN_MAX

    def _open_streams(self, remainder: int) -> int:
        # h2 would look at every open stream for each that is opened, and end the connection where one is to be refused.
        return 0

    def forget(self, stream_id: int) -> None:
        """Keep no more of a stream than how it was closed."""
        if (stream := self.streams.pop(stream_id, None)) is not None:
            self._closed_streams[stream_id] = stream.closed_by

    def has_reset(self, stream_id: int) -> bool:
        """Whether we have reset the stream; what the peer sent before it knew is nobody's."""
        return self._closed_streams.get(stream_id) is StreamClosedBy.SEND_RST_STREAM


class TooMuch(ProtocolError):
    """The peer does more than an honest one would."""

    error_code = ErrorCodes.ENHANCE_YOUR_CALM


class Connection(asyncio.Protocol):
    """Made for one transport; forgets everything when that is lost."""

    transport: asyncio.Transport
    """Set when the connection is made."""

    def __init__(self, *, client_side: bool, limited: Limits) -> None:
        self.limits = limited
        config = H2Configuration(
            client_side=client_side,
            header_encoding=None,
            # What we send we have made ourselves, and checked where callers gave it.
            validate_outbound_headers=False,
            normalize_outbound_headers=False,
        )
        self.h2 = _Http2(config)
        self.h2.local_settings = Settings(
            client=client_side,
            initial_values={
                SettingCodes.INITIAL_WINDOW_SIZE: limits.WINDOW_BYTES,
                SettingCodes.MAX_FRAME_SIZE: limits.FRAME_BYTES_MAX,
                SettingCodes.MAX_HEADER_LIST_SIZE: limits.HEADERS_BYTES_MAX,
                # Servers open none; with 0 h2 takes the late end of a stream that we have reset for one that they open.
                SettingCodes.MAX_CONCURRENT_STREAMS: 1 if client_side else limited.streams_max,
                SettingCodes.ENABLE_PUSH: 0,
            },
        )
        self.streams: dict[int, Stream] = {}
        """Those that can still receive or send."""
        self.blocked: OrderedDict[int, Stream] = OrderedDict()
        """Those with a backlog; the one whose turn is longest ago first."""
        self.is_full = False
        """The socket takes nothing more."""
        self._unsent_control_bytes = 0
        """Of frames that are no messages, since it has been full."""
        self.is_lost = False
        self._is_gone = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._out: list[bytes] = []
        self._is_flushing = False
        self._rest = b""
        self._preface_left = 0 if client_side else frames.PREFACE_BYTES
        self._has_settings = False
        self._is_in_headers = False
        self._window_bytes = limits.CONNECTION_WINDOW_BYTES
        self._owed_bytes = 0
        self._control = limits.Allowance(limits.CONTROL_BURST, limits.CONTROL_PER_S, self._loop.time())
        self._watch = Watch(
            limited, may_ping=lambda: self.may_ping, ping=self._ping, too_slow=self._too_slow, gone=self._gone
        )
        self._cut: asyncio.TimerHandle | None = None

    # What the two ends do differently.

    @property
    def may_ping(self) -> bool:
        """Whether a silent peer is to be asked if it is there."""
        return True

    def began(self) -> None:
        """The transport is there, and our preface is sent."""

    def settled(self) -> None:
        """The peer's first settings are there."""

    def event(self, event: Event) -> None:
        """An event of `h2` that is one end's own."""

    def told_to_go(self, last_stream_id: int, error_code: int) -> None:
        """The peer serves no streams after `last_stream_id`."""

    def remote_ended(self, stream: Stream) -> None:
        """The peer has ended its side of `stream`."""

    def was_reset(self, stream: Stream, error_code: int) -> None:
        """The peer has ended `stream` in both directions."""

    def broke(self, stream: Stream, error: Oversized | Compressed) -> None:
        """A message cannot be taken."""

    def ended(self, error: Exception | None) -> None:
        """The connection is lost, or given up."""

    def end_stream(self, stream: Stream, trailers: Headers) -> None:
        """End our side of `stream`."""
        raise NotImplementedError

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's has the methods, not the base class
        if not has_agreed(self.transport):
            log.info("connection refused", peer=self.peer, error="no HTTP/2")
            self._over(ConnectionRefusedError("the peer did not agree to HTTP/2 (ALPN)"))
            self.transport.abort()
            return
        self.h2.initiate_connection()
        self.write_h2()
        self.write(frames.window_update(0, limits.CONNECTION_WINDOW_BYTES - 65_535))
        self._watch.start()
        self.began()

    def connection_lost(self, exc: Exception | None) -> None:
        self._over(exc)
        if self._cut is not None:
            self._cut.cancel()
        self._is_gone.set()

    def _over(self, error: Exception | None) -> None:
        """Nothing comes or goes any more, whether the socket is closed or still takes what was written."""
        if self.is_lost:
            return
        self.is_lost = True
        self._watch.stop()
        self._out.clear()
        self.ended(error)
        self.streams.clear()
        self.blocked.clear()

    def pause_writing(self) -> None:
        self.is_full = True

    def resume_writing(self) -> None:
        self.is_full = False
        self._unsent_control_bytes = 0
        self._pump()

    def eof_received(self) -> None:
        # No client of gRPC ends its side alone; nobody would hear of a stream that it ends later.
        self.shut()

    def data_received(self, data: bytes) -> None:
        if self.is_lost:
            return  # what TLS had still in hand
        self._watch.reads += 1
        try:
            if self._preface_left:
                # h2 compares what has come of the preface, however few bytes.
                size = min(self._preface_left, len(data))
                self._preface_left -= size
                self.h2.receive_data(data[:size])
                data = data[size:]
            if self._rest:
                data = self._rest + data
            self._rest = data[self._frames(data) :]
        except ProtocolError as error:
            self._fail(error)

    # Frames in.

    def _frames(self, data: bytes) -> int:
        """Handle the frames that are complete; how many bytes they were."""
        start, size, streams = 0, len(data), self.streams
        while size - start >= frames.HEAD_BYTES:
            high, low, kind, flags, stream_id = frames.unpack_head(data, start)
            length = high << 16 | low
            end = start + frames.HEAD_BYTES + length
            if length > limits.FRAME_BYTES_MAX:
                raise FrameTooLargeError(f"a frame of {length} bytes")
            if end > size:
                break
            stream = streams.get(stream_id) if kind == frames.DATA else None
            if stream is not None and stream.is_remote_open and not self._is_in_headers:
                self._data(stream, data, start + frames.HEAD_BYTES, end, flags)
            elif kind == frames.DATA and not self._is_in_headers and self.h2.has_reset(stream_id):
                self._count(length)  # h2 would reset the stream again for each
            elif kind == frames.DATA or self._is_for_h2(kind, flags, data, start):
                self._other(data[start:end])
            else:
                self._goaway(stream_id, data, start + frames.HEAD_BYTES, length)
            start = end
        return start

    def _data(self, stream: Stream, data: bytes, start: int, end: int, flags: int) -> None:
        length = end - start
        self._count(length)
        if not stream.counts(length):
            self.reset(stream, ErrorCodes.FLOW_CONTROL_ERROR)
            self.was_reset(stream, ErrorCodes.FLOW_CONTROL_ERROR)
            return
        if flags & frames.PADDED:
            start, end = self._without_padding(stream, data, start, end)
        if start < end:
            try:
                stream.receive(data, start, end)
            except (Oversized, Compressed) as error:
                self.broke(stream, error)
                return
        elif not flags & frames.END_STREAM:
            self._count_control()
        if flags & frames.END_STREAM and stream.id in self.streams:
            # h2 keeps the stream's state: it gets the end without what came with it.
            self._other(frames.data_head(stream.id, 0, frames.END_STREAM))

    def _count(self, length: int) -> None:
        """Count a DATA frame against the connection's window, and open that again."""
        self._window_bytes -= length
        if self._window_bytes < 0:
            raise FlowControlError("more bytes than the connection's window allows")
        self._owed_bytes += length
        if self._owed_bytes >= limits.CONNECTION_WINDOW_BYTES // 4:
            self._window_bytes += self._owed_bytes
            self.write(frames.window_update(0, self._owed_bytes))
            self._owed_bytes = 0

    def _without_padding(self, stream: Stream, data: bytes, start: int, end: int) -> tuple[int, int]:
        if start == end or data[start] >= end - start:
            raise ProtocolError("a frame's padding is longer than the frame")
        stream.discard(data[start] + 1)
        return start + 1, end - data[start]

    def _is_for_h2(self, kind: int, flags: int, data: bytes, start: int) -> bool:
        """Whether h2 gets the frame; it would end the connection at a GOAWAY, while its streams may go on."""
        if not self._has_settings and (kind != frames.SETTINGS or flags & frames.ACK):
            raise ProtocolError("the first frame is not SETTINGS")
        self._has_settings = True
        if kind in frames.OF_HEADERS:
            self._is_in_headers = not flags & frames.END_HEADERS
            self._watch.in_headers(is_open=self._is_in_headers)
        elif kind == frames.GOAWAY and not self._is_in_headers:
            return False
        elif kind == frames.PRIORITY or (kind in (frames.PING, frames.SETTINGS) and not flags & frames.ACK):
            self._count_control()
        return True

    def _goaway(self, stream_id: int, data: bytes, start: int, length: int) -> None:
        if stream_id & frames.LAST_STREAM_ID:
            raise ProtocolError("a GOAWAY frame on a stream")
        if length < 8:
            raise FrameDataMissingError("a GOAWAY frame is too short")
        last_stream_id = int.from_bytes(data[start : start + 4]) & frames.LAST_STREAM_ID
        self.told_to_go(last_stream_id, int.from_bytes(data[start + 4 : start + 8]))

    def _other(self, frame: bytes) -> None:
        """Give h2 a frame, and do what it makes of it: before the next, after which the stream may be gone for h2."""
        events = self.h2.receive_data(frame)
        # Settings are confirmed before anything is sent that they allow.
        self.write_h2()
        for event in events:
            match event:
                case WindowUpdated(stream_id=stream_id):
                    self._pump() if not stream_id else self._pump_one(stream_id)
                case StreamEnded(stream_id=stream_id):
                    self._remote_ended(stream_id)
                case StreamReset(stream_id=stream_id, error_code=error_code):
                    self._was_reset(stream_id, int(error_code))
                case RemoteSettingsChanged():
                    self._new_settings()
                case PingAckReceived():
                    self._watch.answered()
                    self.event(event)
                case _:
                    self.event(event)
        self.write_h2()
        if self._unsent_control_bytes > limits.CONTROL_BACKLOG_BYTES:
            raise TooMuch("it reads nothing and asks for answers")

    def _new_settings(self) -> None:
        if self._watch.settled():
            self.settled()
        if len(self.h2.remote_settings) > limits.SETTINGS_KEPT:
            raise TooMuch("more settings than there are")
        if self.h2.encoder.header_table_size > limits.TABLE_BYTES_MAX:
            self.h2.encoder.header_table_size = limits.TABLE_BYTES_MAX
        self._pump()

    def _remote_ended(self, stream_id: int) -> None:
        stream = self.streams.get(stream_id)
        if stream is None:
            return
        stream.is_remote_open = False
        stream.is_ended = True
        stream.wake()
        self.remote_ended(stream)
        self.forget_if_done(stream)

    def _was_reset(self, stream_id: int, error_code: int) -> None:
        stream = self.streams.pop(stream_id, None)
        if stream is not None:
            self.h2.forget(stream_id)
            stream.close()
            self.was_reset(stream, error_code)

    # Frames out.

    def write(self, *pieces: bytes) -> None:
        """Send whole frames, with everything else that is written in this wake-up."""
        self._out += pieces
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self.flush)
        elif len(self._out) > limits.OUT_PIECES_MAX:
            # Now the socket says whether it takes them, and what comes next waits with its stream if it does not.
            self._hand_over()

    def write_h2(self) -> None:
        """Send what h2 has to say."""
        if said := self.h2.data_to_send():
            if self.is_full:
                # What streams send is bounded by their windows; this is bounded by how much the peer asks for.
                self._unsent_control_bytes += len(said)
            self.write(said)

    def flush(self) -> None:
        """Hand everything to the socket."""
        self._is_flushing = False
        self._hand_over()

    def _hand_over(self) -> None:
        out = self._out
        if out and not self.is_lost:
            self._out = []
            self.transport.write(b"".join(out))

    def send_headers(self, stream: Stream, headers: Headers, *, end: bool = False) -> None:
        """Send headers or trailers."""
        self.h2.send_headers(stream.id, headers, end_stream=end)
        self.write_h2()

    def reset(self, stream: Stream, error_code: ErrorCodes) -> None:
        """End `stream` in both directions, now."""
        if self.streams.pop(stream.id, None) is None:
            return
        if not self.is_lost:
            # h2 may have closed it in this very wake-up.
            with suppress(StreamClosedError):
                self.h2.reset_stream(stream.id, error_code)
            self.h2.forget(stream.id)
            self.write_h2()
        stream.close()

    def forget_if_done(self, stream: Stream) -> None:
        """Forget `stream` when both of its sides have ended."""
        if not (stream.is_remote_open or stream.is_local_open) and self.streams.pop(stream.id, None) is not None:
            self.h2.forget(stream.id)
            self.blocked.pop(stream.id, None)

    def shut(self, error: Exception | None = None) -> None:
        """Close the socket behind what was written; what the peer does not take in time is dropped."""
        if self.is_lost:
            return
        self.flush()
        if error is None:
            self.part()
        else:
            self.transport.close()
        self._cut = self._loop.call_later(self.limits.close_s, self.transport.abort)
        self._over(error)

    def part(self) -> None:
        """End a connection that has served its time."""
        self.transport.close()

    async def closed(self) -> None:
        """Say goodbye, close the connection, and wait until it is."""
        if not self.is_lost:
            self.write(frames.goaway(self.h2.highest_inbound_stream_id))
            self.shut()
        await self._is_gone.wait()

    def _pump(self) -> None:
        for _ in range(len(self.blocked)):
            if self.is_full or self.h2.outbound_flow_control_window <= 0 or not self.blocked:
                return
            next(iter(self.blocked.values())).pump()

    def _pump_one(self, stream_id: int) -> None:
        if (stream := self.blocked.get(stream_id)) is not None:
            stream.pump()

    # Peers that misbehave, or are gone.

    def _fail(self, error: ProtocolError) -> None:
        log.info("connection refused", peer=self.peer, error=str(error), code=int(error.error_code))
        # For an error of its own h2 has said so already; another GOAWAY behind it changes nothing.
        self.write_h2()
        self.write(frames.goaway(self.h2.highest_inbound_stream_id, error.error_code))
        self.shut(error)

    def _count_control(self) -> None:
        if not self._control.takes(self._loop.time()):
            raise TooMuch("more control frames than an honest peer sends")

    def _too_slow(self) -> None:
        log.info("connection refused", peer=self.peer, error="too slow")
        self.transport.abort()

    def _gone(self) -> None:
        log.info("peer is gone", peer=self.peer)
        self.transport.abort()

    def _ping(self) -> None:
        self.h2.ping(b"headrace")
        self.write_h2()

    @property
    def peer(self) -> str:
        """The other end's address as gRPC writes it."""
        return _address(self.transport.get_extra_info("peername"))


def _address(name: Any) -> str:
    if not isinstance(name, tuple):
        return f"unix:{name or ''}"
    host, port = str(name[0]), name[1]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
