"""The client's end of a connection: it carries calls until the server tells it to go, or it breaks."""

from __future__ import annotations

from collections.abc import Callable

import grpc
from h2.errors import ErrorCodes
from h2.events import Event, ResponseReceived, TrailersReceived
from h2.exceptions import NoAvailableStreamIDError

from services.runtime.http2.client.call import Call
from services.runtime.http2.connection import Connection
from services.runtime.http2.header_blocks import read_answer, read_trailers
from services.runtime.http2.limits import Limits
from services.runtime.http2.metadata import Headers
from services.runtime.http2.status import Status, from_reset
from services.runtime.http2.stream import Compressed, Oversized, Stream


class ClientConnection(Connection):
    """Made by a channel for one address. Takes calls from `on_ready` on, until `on_gone`."""

    def __init__(
        self,
        message_bytes_max: int,
        limits: Limits,
        on_ready: Callable[[ClientConnection], None],
        on_free: Callable[[], None],
        on_gone: Callable[[ClientConnection, str], None],
    ) -> None:
        super().__init__(client_side=True, limited=limits)
        self._message_bytes_max = message_bytes_max
        self._on_ready = on_ready
        self._on_free = on_free
        """A stream has ended, so that there is room for another."""
        self._on_gone = on_gone
        self.is_told_to_go = False
        """It takes no more calls."""
        self._calls: dict[int, Call] = {}

    @property
    def may_ping(self) -> bool:
        # Servers of others count pings without a call as abuse.
        return bool(self._calls)

    @property
    def has_room(self) -> bool:
        """Whether one more call may be opened."""
        return (
            not (self.is_told_to_go or self.is_lost)
            and len(self._calls) < self.h2.remote_settings.max_concurrent_streams
        )

    def began(self) -> None:
        self.out.flush()

    def settled(self) -> None:
        self._on_ready(self)

    def open(self, call: Call) -> None:
        """Open a stream for `call`. There is room."""
        try:
            stream_id = self.h2.get_next_available_stream_id()
        except NoAvailableStreamIDError:
            self.told_to_go(self.h2.highest_outbound_stream_id, ErrorCodes.NO_ERROR)
            call.ended(Status(grpc.StatusCode.UNAVAILABLE, "the connection is used up", is_refused=True))
            return
        self.out.write_control(self.h2.sent(stream_id, call.headers, is_end=False))
        stream = Stream(self, stream_id, self.h2.streams[stream_id], self._message_bytes_max)
        self.streams[stream_id] = stream
        self._calls[stream_id] = call
        call.opened(self, stream)

    def event(self, event: Event) -> None:
        if isinstance(event, ResponseReceived | TrailersReceived):
            assert event.stream_id is not None, "h2 sets it"
            call = self._calls.get(event.stream_id)
            if call is None:
                return
            if isinstance(event, ResponseReceived):
                self.h2.ignore_length(event.stream_id)
                call.answered(event.headers)
            else:
                call.closing(event.headers)

    def take_headers(self, stream_id: int, block: bytes, *, is_end: bool) -> bool:
        call = self._calls.get(stream_id)
        if call is None or stream_id not in self.streams:
            return False
        headers = read_trailers(block) if call.is_answered and is_end else read_answer(block)
        if headers is None or (call.is_answered and not is_end):
            return False
        self.h2.answered(stream_id, is_end=is_end)
        if call.is_answered:
            call.closing(headers)
        else:
            call.answered(headers)
        if is_end:
            self.end_remote(stream_id)
        return True

    def remote_ended(self, stream: Stream) -> None:
        call = self._calls.pop(stream.id, None)
        if stream.is_local_open:
            # The server has said all; it does not wait for the rest of the request.
            self.reset(stream, ErrorCodes.NO_ERROR)
        if call is not None:
            call.remote_ended()
        self._on_free()

    def was_reset(self, stream: Stream, error_code: int) -> None:
        if (call := self._calls.pop(stream.id, None)) is not None:
            call.was_reset(from_reset(error_code))
        self._on_free()

    def broke(self, stream: Stream, error: Oversized | Compressed) -> None:
        what = (
            f"a message is larger than {stream.message_bytes_max} bytes"
            if isinstance(error, Oversized)
            else "the server sent a compressed message, which nobody asked for"
        )
        code = grpc.StatusCode.RESOURCE_EXHAUSTED if isinstance(error, Oversized) else grpc.StatusCode.INTERNAL
        call = self._calls.get(stream.id)
        self.drop(stream)
        if call is not None:
            call.ended(Status(code, what))

    def drop(self, stream: Stream) -> None:
        """Reset the stream of a call that nobody wants any more."""
        self._calls.pop(stream.id, None)
        self.reset(stream, ErrorCodes.CANCEL)
        self.out.flush()
        self._on_free()

    def told_to_go(self, last_stream_id: int, error_code: int) -> None:
        if not self.is_told_to_go:
            self.is_told_to_go = True
            self._on_gone(self, "the server told the connection to go")
        for stream_id in [stream_id for stream_id in self._calls if stream_id > last_stream_id]:
            call = self._calls.pop(stream_id)
            stream = self.streams.pop(stream_id)
            self.h2.forget(stream_id)
            stream.close()
            call.ended(Status(grpc.StatusCode.UNAVAILABLE, "the server is leaving", is_refused=True))
        self.close_if_done()

    def close_if_done(self) -> None:
        """Close a connection that takes no more calls and has none."""
        if self.is_told_to_go and not self._calls and not self.is_lost:
            self.shut()

    def forget_if_done(self, stream: Stream) -> None:
        super().forget_if_done(stream)
        self.close_if_done()

    def end_stream(self, stream: Stream, trailers: Headers) -> None:
        self.h2.end_stream(stream.id)
        self.out.write_h2()
        self.forget_if_done(stream)

    def ended(self, error: Exception | None) -> None:
        why = f"the connection broke: {error or 'closed by the server'}"
        if not self.is_told_to_go:
            self.is_told_to_go = True
            self._on_gone(self, why)
        calls, self._calls = self._calls, {}
        for stream in [*self.streams.values()]:
            stream.close()
        for call in calls.values():
            call.ended(Status(grpc.StatusCode.UNAVAILABLE, why))

    def leave(self) -> None:
        """Take no more calls; those there are end by their own."""
        self.is_told_to_go = True
        self.close_if_done()
