"""Both ends of a connection inside the process: a channel's, and a server's with a call for each stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from services.runtime.calls.client_call import Call
from services.runtime.calls.ends import CallStream, ClientEnd, Oversized
from services.runtime.calls.metadata import (
    OK,
    Headers,
    Pairs,
    ServerStatus,
    Status,
    from_trailers,
    measure_headers,
    to_headers,
)
from services.runtime.calls.server_call import ServerCall
from services.runtime.capacity import InFlightCounter
from services.runtime.http2.limits import HEADERS_BYTES_MAX, WINDOW_BYTES, Limits
from services.runtime.local.stream import MESSAGE_BYTES, Link, LocalStream


class LocalEnd:
    """The part that both ends share: messages and credit for their streams."""

    _streams: dict[int, LocalStream]

    def refuse_oversized(self, stream: LocalStream) -> None:
        """End the call of a stream with a message that is larger than allowed."""
        raise NotImplementedError

    def receive_message(self, stream_id: int, message: bytes) -> None:
        if (stream := self._streams.get(stream_id)) is None:
            return
        if len(message) > stream.message_bytes_max:
            self.refuse_oversized(stream)
        elif stream.take is None:
            stream.put_message(message)
        else:
            stream.take(message)
            stream.owed_bytes += min(len(message) + MESSAGE_BYTES, WINDOW_BYTES)
            if stream.owed_bytes >= WINDOW_BYTES // 2:
                stream.return_credit()

    def receive_credit(self, stream_id: int, size: int) -> None:
        if (stream := self._streams.get(stream_id)) is not None:
            stream.receive_credit(size)


class LocalClientConnection(LocalEnd):
    def __init__(
        self,
        message_bytes_max: int,
        limits: Limits,
        on_free: Callable[[], None],
        on_gone: Callable[[ClientEnd, str], None],
    ) -> None:
        self._message_bytes_max = message_bytes_max
        self._limits = limits
        self._on_free = on_free
        self._on_gone = on_gone
        self.is_leaving = False
        self.is_lost = False
        self._next_id = 1
        self._calls: dict[int, Call] = {}
        self._streams: dict[int, LocalStream] = {}

    def connect(self, server: LocalServerConnection, link: Link) -> None:
        """Send to `server` over `link` from now on."""
        self._server, self._link = server, link

    # Methods for the channel.

    @property
    def has_room(self) -> bool:
        return not (self.is_leaving or self.is_lost) and len(self._calls) < self._limits.streams_max

    def open_call(self, call: Call) -> None:
        headers = call.request_headers
        if measure_headers(headers) > HEADERS_BYTES_MAX:
            problem = f"the metadata is larger than the {HEADERS_BYTES_MAX} bytes that the server takes"
            call.finish_call(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, problem))
            return
        stream = LocalStream(self._link, self._server, self._next_id, self._message_bytes_max)
        self._next_id += 1
        self._streams[stream.id], self._calls[stream.id] = stream, call
        call.connect(self, stream)
        request = call.get_request()
        self._link.send(self._server.receive_call, stream.id, call.method.path, headers, request)
        if request is not None:
            stream.is_local_open = False

    def drop_stream(self, stream_id: int) -> None:
        if self._calls.pop(stream_id, None) is not None:
            self._streams.pop(stream_id).close()
            self._link.send(self._server.receive_reset, stream_id)
            self._after_call()

    def close_when_done(self) -> None:
        self.is_leaving = True
        self._close_if_done()

    async def close(self) -> None:
        if not self.is_lost:
            self._link.send(self._server.receive_close)
            self.lose("the connection is closed")

    def lose(self, why: str) -> None:
        """End all calls as if the connection broke."""
        self._leave(why)
        self.is_lost = True
        calls, self._calls = self._calls, {}
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        for call in calls.values():
            call.finish_call(Status(grpc.StatusCode.UNAVAILABLE, why))

    # Callbacks of the server.

    def receive_headers(self, stream_id: int, headers: Headers) -> None:
        if (call := self._calls.get(stream_id)) is not None:
            call.on_headers(headers)

    def refuse_oversized(self, stream: LocalStream) -> None:
        call = self._calls[stream.id]
        self.drop_stream(stream.id)
        problem = f"a message is larger than {stream.message_bytes_max} bytes"
        call.finish_call(Status(grpc.StatusCode.RESOURCE_EXHAUSTED, problem))

    def receive_answer(self, stream_id: int, headers: Headers | None, message: bytes | None, status: Status) -> None:
        """Take the rest of an answer: its headers if they were not sent yet, a last message if any, and its status."""
        if message is not None:
            self.receive_message(stream_id, message)
        if (call := self._calls.pop(stream_id, None)) is not None:
            # The server has sent everything; it does not wait for the rest of the request.
            self._streams.pop(stream_id).close()
            call.on_answer(headers, status)
            self._after_call()

    def receive_end(self, stream_id: int) -> None:
        """Do nothing: a server ends its side with an answer."""

    def receive_reset(self, stream_id: int, status: Status) -> None:
        if (call := self._calls.pop(stream_id, None)) is not None:
            self._streams.pop(stream_id).close()
            call.on_reset(status)
            self._after_call()

    def receive_leave(self) -> None:
        """Open no more calls: the server is leaving."""
        self._leave("the server asked to close the connection")
        self._close_if_done()

    def receive_close(self) -> None:
        if not self.is_lost:
            self.lose("the connection broke: closed by the server")

    def _leave(self, why: str) -> None:
        if not self.is_leaving:
            self.is_leaving = True
            self._on_gone(self, why)

    def _after_call(self) -> None:
        self._on_free()
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.is_leaving and not self._calls and not self.is_lost:
            self.is_lost = True
            self._link.send(self._server.receive_close)


StartCall: TypeAlias = "Callable[[LocalServerConnection, LocalStream, str, Headers], ServerCall | None]"
"""Starts the call of a method; returns None if it was answered already."""

LEAVING = Status(grpc.StatusCode.UNAVAILABLE, "the server is leaving", is_refused=True)
CUT_OFF = Status(grpc.StatusCode.CANCELLED, "the server reset the stream")


@dataclass(frozen=True, slots=True)
class LocalServerState:
    """The state that all connections of a server share."""

    start_call: StartCall
    message_bytes_max: int
    limits: Limits
    in_flight: InFlightCounter
    connections: dict[LocalServerConnection, None]
    """Open connections, in the order of opening."""


class LocalServerConnection(LocalEnd):
    is_foreign_user = False

    def __init__(self, server: LocalServerState, peer: str) -> None:
        self.peer = peer
        self.request_s = server.limits.request_s
        self.calls: dict[int, ServerCall] = {}
        """Calls with running handlers, by stream id."""
        self._server = server
        self._streams: dict[int, LocalStream] = {}
        self._is_leaving = False
        self._refuses = False
        self.is_lost = False
        server.connections[self] = None

    def connect(self, client: LocalClientConnection, link: Link) -> None:
        """Send to `client` over `link` from now on."""
        self._client, self._link = client, link

    # Methods for the server.

    def start_leaving(self) -> None:
        """Announce the end; calls already sent are still served."""
        if not self._is_leaving and not self.is_lost:
            self._is_leaving = True
            self._link.send(self._client.receive_leave)

    def refuse_new(self) -> None:
        """Refuse new calls from now on, and close after the running ones."""
        self.start_leaving()
        self._refuses = True
        self._close_if_done()

    async def close(self) -> None:
        self._close()

    # Methods for calls.

    def read_peer_identity(self) -> dict[str, list[bytes]]:
        return {}

    def note_admitted(self) -> None:
        """Do nothing: callers inside the process are no strangers."""

    def send_headers(self, stream_id: int, headers: Headers) -> None:
        self._link.send(self._client.receive_headers, stream_id, headers)

    def finish_stream(
        self, stream: CallStream, initial: Pairs | None, message: bytes | None, status: ServerStatus
    ) -> None:
        # The answer is complete, whatever else the client sends.
        del self._streams[stream.id]
        stream.is_ended, stream.is_local_open = True, False
        if message is None:  # otherwise the handler has read its request
            stream.wake_reader()
        headers = None if initial is None else to_headers(initial)
        known = OK
        if status.code is not grpc.StatusCode.OK or status.details or status.trailing:
            are_all = initial is not None and message is None
            known = from_trailers(status.to_trailers(), are_all=are_all) or OK
        self._link.send(self._client.receive_answer, stream.id, headers, message, known)

    def cancel_stream(self, stream_id: int) -> None:
        if (stream := self._streams.pop(stream_id, None)) is not None:
            stream.close()
            self._link.send(self._client.receive_reset, stream_id, CUT_OFF)

    def on_call_end(self, stream_id: int) -> None:
        del self.calls[stream_id]
        self._server.in_flight.decrement()
        self._close_if_done()

    # Callbacks of the client.

    def receive_call(self, stream_id: int, path: str, headers: Headers, request: bytes | None) -> None:
        """Start a call; `request` is the only message, or None if messages follow."""
        if self._refuses or self.is_lost:
            self._link.send(self._client.receive_reset, stream_id, LEAVING)
            return
        stream = LocalStream(self._link, self._client, stream_id, self._server.message_bytes_max)
        self._streams[stream_id] = stream
        if request is not None and len(request) <= stream.message_bytes_max:
            stream.put_message(request)
            stream.is_ended = True
        call = self._server.start_call(self, stream, path, headers)
        if call is not None:
            self.calls[stream_id] = call
            self._server.in_flight.increment()
            if request is not None and not stream.is_ended:
                call.fail_unreadable(Oversized())

    def refuse_oversized(self, stream: LocalStream) -> None:
        self.calls[stream.id].fail_unreadable(Oversized())

    def receive_end(self, stream_id: int) -> None:
        if (stream := self._streams.get(stream_id)) is not None:
            stream.is_ended = True
            stream.wake_reader()

    def receive_reset(self, stream_id: int) -> None:
        if (stream := self._streams.pop(stream_id, None)) is not None:
            stream.close()
        if (call := self.calls.get(stream_id)) is not None:
            call.on_hang_up()

    def receive_close(self) -> None:
        """End all calls as if the connection broke."""
        if self.is_lost:
            return
        self.is_lost = True
        self._server.connections.pop(self, None)
        for stream in [*self._streams.values()]:
            stream.close()
        self._streams.clear()
        for call in [*self.calls.values()]:
            call.on_hang_up()

    def _close_if_done(self) -> None:
        if self._refuses and not self.calls:
            self._close()

    def _close(self) -> None:
        if not self.is_lost:
            self._link.send(self._client.receive_close)
            self.receive_close()
