"""The client's end of a connection, and statuses from HTTP/2 itself, beyond gRPC's trailers."""

from __future__ import annotations

from collections.abc import Callable

import grpc
from h2.errors import ErrorCodes
from h2.events import Event, ResponseReceived, TrailersReceived
from h2.exceptions import NoAvailableStreamIDError

from services.runtime.calls.client_call import Call
from services.runtime.calls.ends import Compressed, Oversized
from services.runtime.calls.metadata import Headers, Status
from services.runtime.http2.connection import Connection
from services.runtime.http2.header_blocks import (
    RESPONSE,
    TRAILERS,
    check_headers,
    encode_block,
    is_oversized,
    read_answer,
    read_trailers,
)
from services.runtime.http2.limits import Limits
from services.runtime.http2.stream import Stream


class ClientConnection(Connection):
    """A channel's connection to one address, open for calls from `on_ready` until `on_gone`."""

    def __init__(
        self,
        message_bytes_max: int,
        limits: Limits,
        on_ready: Callable[[ClientConnection], None],
        on_free: Callable[[], None],
        on_gone: Callable[[ClientConnection, str], None],
        *,
        scheme: bytes,
        authority: bytes,
    ) -> None:
        super().__init__(client_side=True, connection_limits=limits)
        self._message_bytes_max = message_bytes_max
        self._on_ready = on_ready
        self._on_free = on_free
        """Called when a stream has ended and there is room for another."""
        self._on_gone = on_gone
        self.is_leaving = False
        self._closed_by = "closed by the server"
        self._calls: dict[int, Call] = {}
        self._scheme, self._authority = scheme, authority
        self._heads: dict[str, bytes] = {}
        """The encoded headers common to all calls of a method."""

    @property
    def may_ping(self) -> bool:
        # Other implementations' servers count pings without a call as abuse.
        return bool(self._calls)

    @property
    def has_room(self) -> bool:
        return (
            not (self.is_leaving or self.is_lost) and len(self._calls) < self.h2.remote_settings.max_concurrent_streams
        )

    def on_connected(self) -> None:
        self.out.flush_all()

    def on_settings(self) -> None:
        self._on_ready(self)

    def open_call(self, call: Call) -> None:
        """Open a stream for `call`; there must be room."""
        bytes_max = self.h2.remote_settings.max_header_list_size
        head = self._heads.get(call.method.path) or self._encode_head(call.method.path)
        block = head + encode_block(call.request_headers)
        if bytes_max is not None and is_oversized(block, bytes_max):
            # Otherwise the server would end the connection, and all other calls with it.
            problem = f"the metadata is larger than the {bytes_max} bytes that the server takes"
            call.finish_call(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, problem))
            return
        try:
            stream_id = self.h2.get_next_available_stream_id()
        except NoAvailableStreamIDError:
            self.on_goaway(self.h2.highest_outbound_stream_id, ErrorCodes.NO_ERROR)
            call.finish_call(Status(grpc.StatusCode.UNAVAILABLE, "the connection is used up", is_refused=True))
            return
        self.out.write_control(self.h2.send_headers_of(stream_id, block, is_end=False))
        stream = Stream(self, stream_id, self.h2.streams[stream_id], self._message_bytes_max)
        self.streams[stream_id] = stream
        self._calls[stream_id] = call
        call.connect(self, stream)
        if (request := call.get_request()) is not None:
            stream.send_last(request)

    def _encode_head(self, path: str) -> bytes:
        self._heads[path] = encode_block(
            (
                (b":method", b"POST"),
                (b":scheme", self._scheme),
                (b":path", path.encode()),
                (b":authority", self._authority),
                (b"te", b"trailers"),
                (b"content-type", b"application/grpc"),
                (b"user-agent", b"headrace"),
            )
        )
        return self._heads[path]

    def handle_event(self, event: Event) -> None:
        if isinstance(event, ResponseReceived | TrailersReceived):
            assert event.stream_id is not None, "h2 sets it"
            call = self._calls.get(event.stream_id)
            if call is None:
                return
            check_headers(event.headers, RESPONSE if isinstance(event, ResponseReceived) else TRAILERS)
            if isinstance(event, ResponseReceived):
                self.streams[event.stream_id].length_left = self.h2.take_length(event.stream_id)
                call.on_headers(event.headers, from_http(event.headers))
            else:
                call.on_trailers(event.headers)

    def accept_headers(self, stream_id: int, block: bytes, *, is_end: bool) -> bool:
        call = self._calls.get(stream_id)
        if call is None or stream_id not in self.streams:
            return False
        headers = read_trailers(block) if call.has_headers and is_end else read_answer(block)
        if headers is None or (call.has_headers and not is_end):
            return False
        self.h2.note_answer(stream_id, is_end=is_end)
        if call.has_headers:
            call.on_trailers(headers)
        else:
            call.on_headers(headers, from_http(headers))
        if is_end:
            self.finish_remote(stream_id)
        return True

    def on_remote_end(self, stream: Stream) -> None:
        call = self._calls.pop(stream.id, None)
        if stream.is_local_open:
            # The server has sent everything; it does not wait for the rest of the request.
            self.reset_stream(stream, ErrorCodes.NO_ERROR)
        if call is not None:
            call.on_remote_end()
        self._on_free()

    def on_reset(self, stream: Stream, error_code: int) -> None:
        if (call := self._calls.pop(stream.id, None)) is not None:
            call.on_reset(from_reset(error_code))
        self._on_free()

    def on_bad_message(self, stream: Stream, error: Oversized | Compressed) -> None:
        what = (
            f"a message is larger than {stream.message_bytes_max} bytes"
            if isinstance(error, Oversized)
            else "the server sent a compressed message, which nobody asked for"
        )
        code = grpc.StatusCode.RESOURCE_EXHAUSTED if isinstance(error, Oversized) else grpc.StatusCode.INTERNAL
        call = self._calls.get(stream.id)
        self.drop_stream(stream.id)
        if call is not None:
            call.finish_call(Status(code, what))

    def drop_stream(self, stream_id: int) -> None:
        """Reset the stream of an abandoned call."""
        self._calls.pop(stream_id, None)
        self.cancel_stream(stream_id)
        self.out.flush_all()
        self._on_free()

    def on_goaway(self, last_stream_id: int, error_code: int) -> None:
        if error_code:
            self._closed_by = f"closed by the server with {name_error(error_code).name}"
        if not self.is_leaving:
            self.is_leaving = True
            self._on_gone(self, "the server asked to close the connection")
        for stream_id in [stream_id for stream_id in self._calls if stream_id > last_stream_id]:
            call = self._calls.pop(stream_id)
            stream = self.streams.pop(stream_id)
            self.h2.forget_stream(stream_id)
            stream.close()
            call.finish_call(Status(grpc.StatusCode.UNAVAILABLE, "the server is leaving", is_refused=True))
        self.close_if_done()

    def close_if_done(self) -> None:
        if self.is_leaving and not self._calls and not self.is_lost:
            self.close_gracefully()

    def forget_if_done(self, stream: Stream) -> None:
        super().forget_if_done(stream)
        self.close_if_done()

    def end_stream(self, stream: Stream, trailers: Headers) -> None:
        self.h2.end_stream(stream.id)
        self.out.write_h2()
        self.forget_if_done(stream)

    def on_lost(self, error: Exception | None) -> None:
        why = f"the connection broke: {error or self._closed_by}"
        if not self.is_leaving:
            self.is_leaving = True
            self._on_gone(self, why)
        calls, self._calls = self._calls, {}
        for stream in [*self.streams.values()]:
            stream.close()
        for call in calls.values():
            call.finish_call(Status(grpc.StatusCode.UNAVAILABLE, why))

    def close_when_done(self) -> None:
        self.is_leaving = True
        self.close_if_done()


_BY_HTTP = {
    b"400": grpc.StatusCode.INTERNAL,
    b"401": grpc.StatusCode.UNAUTHENTICATED,
    b"403": grpc.StatusCode.PERMISSION_DENIED,
    b"404": grpc.StatusCode.UNIMPLEMENTED,
    b"429": grpc.StatusCode.UNAVAILABLE,
    b"502": grpc.StatusCode.UNAVAILABLE,
    b"503": grpc.StatusCode.UNAVAILABLE,
    b"504": grpc.StatusCode.UNAVAILABLE,
}
"""https://github.com/grpc/grpc/blob/master/doc/http-grpc-status-mapping.md; any other is UNKNOWN."""

_BY_RESET = {
    ErrorCodes.REFUSED_STREAM: grpc.StatusCode.UNAVAILABLE,
    ErrorCodes.CANCEL: grpc.StatusCode.CANCELLED,
    ErrorCodes.ENHANCE_YOUR_CALM: grpc.StatusCode.RESOURCE_EXHAUSTED,
    ErrorCodes.INADEQUATE_SECURITY: grpc.StatusCode.PERMISSION_DENIED,
}
"""https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md#errors; any other is INTERNAL."""


def from_http(headers: Headers) -> Status | None:
    """Return the status of a proxy's answer; None for one of gRPC."""
    fields = dict(headers)
    status = fields.get(b":status", b"")
    if status != b"200":
        code = _BY_HTTP.get(status, grpc.StatusCode.UNKNOWN)
        return Status(code, f"the server answered with HTTP status {status[:3].decode('latin-1')}")
    if not fields.get(b"content-type", b"").startswith(b"application/grpc"):
        return Status(grpc.StatusCode.UNKNOWN, "the server answered with something else than gRPC")
    return None


def from_reset(error_code: int) -> Status:
    known = name_error(error_code)
    code = _BY_RESET.get(known, grpc.StatusCode.INTERNAL)
    return Status(code, f"the server reset the stream: {known.name}", is_refused=known is ErrorCodes.REFUSED_STREAM)


def name_error(error_code: int) -> ErrorCodes:
    """Return the name of a peer's error code; INTERNAL_ERROR for an unknown one."""
    return ErrorCodes(error_code) if error_code in ErrorCodes.__members__.values() else ErrorCodes.INTERNAL_ERROR
