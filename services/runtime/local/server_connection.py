"""A server's end of a connection inside the process, with a call for each stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from services.runtime.calls.inbox import Oversized
from services.runtime.calls.metadata import Headers
from services.runtime.calls.server_call import ServerCall
from services.runtime.calls.status import Status
from services.runtime.capacity import InFlightCounter
from services.runtime.http2.limits import Limits
from services.runtime.local.client_connection import LocalClientConnection
from services.runtime.local.link import Link
from services.runtime.local.stream import LocalStream

StartCall: TypeAlias = "Callable[[LocalServerConnection, LocalStream, str, Headers], ServerCall | None]"
"""Starts the call of a method; None if it was answered already."""

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
    """Those that are open, in the order in which they were opened."""


class LocalServerConnection:
    is_foreign_user = False

    def __init__(self, server: LocalServerState, peer: str) -> None:
        self.peer = peer
        self.request_s = server.limits.request_s
        self.calls: dict[int, ServerCall] = {}
        """Calls whose handler has not ended, by stream id."""
        self._server = server
        self._streams: dict[int, LocalStream] = {}
        self._is_leaving = False
        self._refuses = False
        self.is_lost = False
        server.connections[self] = None

    def connect(self, client: LocalClientConnection, link: Link) -> None:
        """Send to `client` over `link` from now on."""
        self._client, self._link = client, link

    # What the server asks.

    def start_leaving(self) -> None:
        """Announce the end; calls that are on their way are still served."""
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

    # What calls ask.

    def read_peer_identity(self) -> dict[str, list[bytes]]:
        return {}

    def note_admitted(self) -> None:
        """Do nothing: nobody in the process is a stranger."""

    def send_headers(self, stream_id: int, headers: Headers) -> None:
        self._link.send(self._client.receive_headers, stream_id, headers)

    def cancel_stream(self, stream_id: int) -> None:
        if (stream := self._forget_stream(stream_id)) is not None:
            stream.close()
            self._link.send(self._client.receive_reset, stream_id, CUT_OFF)

    def on_call_end(self, stream_id: int) -> None:
        del self.calls[stream_id]
        self._server.in_flight.decrement()
        self._close_if_done()

    # What streams send.

    def send_message(self, stream_id: int, message: bytes) -> None:
        self._link.send(self._client.receive_message, stream_id, message)

    def send_end(self, stream: LocalStream, trailers: Headers) -> None:
        self._link.send(self._client.receive_trailers, stream.id, trailers)
        # The answer is complete whatever else the client would say.
        self._forget_stream(stream.id)
        stream.receive_end()

    def send_credit(self, stream_id: int, size: int) -> None:
        if not self.is_lost:
            self._link.send(self._client.receive_credit, stream_id, size)

    # What comes from the client.

    def receive_call(self, stream_id: int, path: str, headers: Headers) -> None:
        if self._refuses or self.is_lost:
            self._link.send(self._client.receive_reset, stream_id, LEAVING)
            return
        stream = LocalStream(self, stream_id, self._server.message_bytes_max)
        self._streams[stream_id] = stream
        call = self._server.start_call(self, stream, path, headers)
        if call is not None:
            self.calls[stream_id] = call
            self._server.in_flight.increment()

    def receive_message(self, stream_id: int, message: bytes) -> None:
        if (stream := self._streams.get(stream_id)) is None:
            return
        if len(message) > stream.message_bytes_max:
            self.calls[stream_id].fail_unreadable(Oversized())
        else:
            stream.receive_message(message)

    def receive_end(self, stream_id: int) -> None:
        if (stream := self._streams.get(stream_id)) is not None:
            stream.receive_end()

    def receive_credit(self, stream_id: int, size: int) -> None:
        if (stream := self._streams.get(stream_id)) is not None:
            stream.receive_credit(size)

    def receive_reset(self, stream_id: int) -> None:
        if (stream := self._forget_stream(stream_id)) is not None:
            stream.close()
        if (call := self.calls.get(stream_id)) is not None:
            call.on_hang_up()

    def receive_close(self) -> None:
        self.lose()

    def lose(self) -> None:
        """Hang up all calls as a broken connection does."""
        if self.is_lost:
            return
        self.is_lost = True
        self._server.connections.pop(self, None)
        for stream in [*self._streams.values()]:
            stream.close()
        self._streams.clear()
        for call in [*self.calls.values()]:
            call.on_hang_up()

    def _forget_stream(self, stream_id: int) -> LocalStream | None:
        return self._streams.pop(stream_id, None)

    def _close_if_done(self) -> None:
        if self._refuses and not self.calls:
            self._close()

    def _close(self) -> None:
        if not self.is_lost:
            self._link.send(self._client.receive_close)
            self.lose()
