"""The server's end of a connection, with a call for each stream."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property
from time import thread_time
from typing import TypeAlias

from h2.errors import ErrorCodes
from h2.events import Event, PingAckReceived, RequestReceived, TrailersReceived

from services.runtime import local_users
from services.runtime.calls.ends import CallStream, Compressed, Oversized
from services.runtime.calls.metadata import Headers, Pairs, ServerStatus, to_headers
from services.runtime.calls.server_call import RESPONSE_HEADERS, ServerCall
from services.runtime.capacity import InFlightCounter
from services.runtime.http2 import frames, limits
from services.runtime.http2.connection import Connection
from services.runtime.http2.header_blocks import REQUEST, TRAILERS, check_headers, read_request
from services.runtime.http2.limits import DEFAULTS, Limits, RateExceeded, RateLimit
from services.runtime.http2.server.unauthenticated import (
    AddressShare,
    Handshake,
    MeasuredSslObject,
    UnauthenticatedConnections,
)
from services.runtime.http2.stream import Stream
from services.runtime.http2.tls import read_peer_identity

_LAST_PING = b"lastcall"


class ServerState:
    def __init__(
        self,
        message_bytes_max: int,
        connection_age_s: float,
        limits: Limits = DEFAULTS,
        *,
        knows_callers: bool = False,
    ) -> None:
        """With `knows_callers`, an interceptor admits calls; until then a peer counts as a stranger."""
        self.message_bytes_max = message_bytes_max
        self.limits = limits
        self.connection_age_s = connection_age_s
        """Age at which a connection is closed in good order, so that clients find new replicas; 0 means never."""
        self.connections: set[ServerConnection] = set()
        self.is_stopping = False
        self.calls = InFlightCounter()
        self.unauthenticated = UnauthenticatedConnections(limits.unauthenticated) if knows_callers else None

    def take_connection(self, connection: ServerConnection) -> bool:
        """Register a connection, evicting a stranger's if there are too many; return whether it was accepted."""
        if self.is_stopping:
            return False
        is_full = len(self.connections) >= self.limits.connections_max
        if is_full and (self.unauthenticated is None or not self.unauthenticated.evict_one()):
            return False
        self.connections.add(connection)
        return True

    def find_wait(self, peer: object) -> float:
        """Return how many seconds the peer's address must wait before anything begins."""
        return 0.0 if self.unauthenticated is None else self.unauthenticated.find_wait(peer)

    def begin_handshake(self, peer: object) -> Handshake | None:
        """Charge a TLS handshake that is about to begin; return None if it must not."""
        return Handshake() if self.unauthenticated is None else self.unauthenticated.begin_handshake(peer)


OpenCall: TypeAlias = "Callable[[ServerConnection, Stream, Headers], ServerCall | None]"
"""Starts the call of a request; returns None if it was answered already."""


class ServerConnection(Connection):
    def __init__(self, open_call: OpenCall, server: ServerState) -> None:
        super().__init__(client_side=False, connection_limits=server.limits)
        self._open_call = open_call
        self._server = server
        self.calls: dict[int, ServerCall] = {}
        """Calls with running handlers, by stream id."""
        self._resets = RateLimit("streams opened and reset", limits.RESET_BURST, server.limits.resets_per_s)
        self._refused = RateLimit("refused calls", limits.REFUSED_BURST, limits.REFUSED_PER_S)
        self._share: AddressShare | None = None
        """Allowance of the peer's address; None after a call was admitted."""
        self._is_leaving = False
        self._refuses = False
        self._last_call: asyncio.TimerHandle | None = None
        self._aged: asyncio.TimerHandle | None = None

    def on_connected(self) -> None:
        if not self._server.take_connection(self):
            self.transport.abort()
            return
        if self._server.unauthenticated is not None:
            self._share = self._server.unauthenticated.add_connection(self)
        if self._server.connection_age_s:
            self._aged = self._loop.call_later(self._server.connection_age_s, self.start_leaving)

    @property
    def request_s(self) -> float:
        return self.limits.request_s

    def read_peer_identity(self) -> dict[str, list[bytes]]:
        return read_peer_identity(self.transport)

    @property
    def is_foreign_user(self) -> bool:
        return self._is_foreign_user

    @cached_property
    def _is_foreign_user(self) -> bool:
        return local_users.is_foreign_user(self.transport)

    def note_admitted(self) -> None:
        """Record that a call was admitted: the limits of strangers no longer apply."""
        if self._share is None:
            return
        ssl_object = self.transport.get_extra_info("ssl_object")
        if isinstance(ssl_object, MeasuredSslObject) and ssl_object.handshake is not None:
            self._share.spend_time(-ssl_object.handshake.charged_s)
        self._leave_share()
        if self.waits_for_turn:
            self.wait_for_turn(0)

    def _leave_share(self) -> None:
        if self._share is not None:
            self._share.remove_connection(self)
            self._share = None

    def handle_input(self, data: bytes) -> None:
        share = self._share
        if share is None:
            super().handle_input(data)
        elif wait_s := share.find_wait():
            # Another connection of the address has used the time up.
            self.incoming.rest += data
            self.wait_for_turn(wait_s)
        else:
            began_s = thread_time()
            super().handle_input(data)
            unread_bytes = sum(stream.unread_bytes for stream in self.streams.values())
            held_bytes = len(self.incoming.rest) + unread_bytes + len(self.calls) * limits.CALL_BYTES
            fits = share.hold_bytes(self, held_bytes)
            share.spend_time(thread_time() - began_s)
            if not fits:
                self.refuse_peer(RateExceeded("more bytes and calls than an address may have without a credential"))
            elif wait_s := share.find_wait():
                self.wait_for_turn(wait_s)

    def handle_event(self, event: Event) -> None:
        if isinstance(event, RequestReceived):
            assert event.stream_id is not None, "h2 sets it"
            check_headers(event.headers, REQUEST)
            self._start_call(event.stream_id, event.headers)
        elif isinstance(event, TrailersReceived):
            check_headers(event.headers, TRAILERS)
        elif isinstance(event, PingAckReceived) and event.ping_data == _LAST_PING:
            self._refuse_new()

    def accept_headers(self, stream_id: int, block: bytes, *, is_end: bool) -> bool:
        if is_end or (headers := read_request(block)) is None or not self.h2.note_request(stream_id):
            return False
        self._start_call(stream_id, headers)
        return True

    def _start_call(self, stream_id: int, headers: Headers) -> None:
        stream = Stream(self, stream_id, self.h2.streams[stream_id], self._server.message_bytes_max)
        stream.is_bounded = self._share is not None
        stream.length_left = self.h2.take_length(stream_id)
        self.streams[stream_id] = stream
        if len(self.streams) > self.limits.streams_max:
            self.control.spend_one()
            self.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            return
        if self._refuses:
            self.reset_stream(stream, ErrorCodes.REFUSED_STREAM)
            return
        if len(self.calls) >= self.limits.handlers_max:
            raise RateExceeded("more calls opened and reset than can be ended")
        call = self._open_call(self, stream, headers)
        if call is not None:
            self.calls[stream_id] = call
            self._server.calls.increment()

    def on_remote_end(self, stream: Stream) -> None:
        if stream.is_cut and stream.id in self.calls:
            self.calls[stream.id].fail_cut()

    def on_reset(self, stream: Stream, error_code: int) -> None:
        call = self.calls.get(stream.id)
        if call is None:
            return
        if not call.has_begun:
            self._resets.spend_one()
        call.on_hang_up()

    def on_bad_message(self, stream: Stream, error: Oversized | Compressed) -> None:
        if (call := self.calls.get(stream.id)) is not None:
            call.fail_unreadable(error)
        else:
            self.reset_stream(stream, ErrorCodes.CANCEL)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._server.connections.discard(self)
        self._leave_share()

    def on_lost(self, error: Exception | None) -> None:
        for timer in (self._aged, self._last_call):
            if timer is not None:
                timer.cancel()
        for stream in [*self.streams.values()]:
            stream.close()
        for call in [*self.calls.values()]:
            call.on_hang_up()

    def finish_stream(
        self, stream: CallStream, initial: Pairs | None, message: bytes | None, status: ServerStatus
    ) -> None:
        trailers = status.to_trailers()
        headers = [] if initial is None else RESPONSE_HEADERS + to_headers(initial)
        if message is None:
            trailers = headers + trailers
        else:
            if headers:
                self.send_headers(stream.id, headers)
            stream.send(message)
        self.streams[stream.id].end_local(trailers)

    def end_stream(self, stream: Stream, trailers: Headers) -> None:
        self.send_headers(stream.id, trailers, end=True)
        if stream.is_remote_open:
            # The answer is complete, whatever else the client sends.
            self.reset_stream(stream, ErrorCodes.NO_ERROR)
        self.forget_if_done(stream)

    def on_call_end(self, stream_id: int) -> None:
        if self.calls.pop(stream_id).is_refused:
            self.note_refused()
        self._server.calls.decrement()
        self._close_if_done()

    def note_refused(self) -> None:
        """Count a refused call, and end a stranger's connection if there are too many."""
        if self._share is not None:
            self._share.spend_time(limits.REFUSED_CALL_S)
        elif self._server.unauthenticated is not None:
            return  # a facade's connection carries calls of strangers along with its callers' streams
        try:
            self._refused.spend_one()
        except RateExceeded as error:
            if not self.is_lost:
                self.refuse_peer(error)

    def start_leaving(self) -> None:
        """Announce the end, refuse calls soon, and close after the running ones."""
        if self._is_leaving or self.is_lost:
            return
        self._is_leaving = True
        # Calls already sent are still served: the client answers the ping after them.
        self.out.write(frames.encode_goaway(frames.LAST_STREAM_ID))
        self.send_ping(_LAST_PING)
        self._last_call = self._loop.call_later(self.limits.last_calls_s, self._refuse_new)

    def refuse_new(self) -> None:
        """Refuse new calls from now on, and close after the running ones."""
        self._is_leaving = True
        self._refuse_new()

    def _refuse_new(self) -> None:
        if self._refuses or not self._is_leaving or self.is_lost:
            return
        self._refuses = True
        self.out.write(frames.encode_goaway(self.h2.highest_inbound_stream_id))
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self._refuses and not self.calls and not self.is_lost:
            self.close_gracefully()

    def close_transport(self) -> None:
        # The client closes the socket. If it had unread data, our close would destroy our last output, and a call that
        # we never saw would look as if it had started (https://github.com/grpc/grpc-go/issues/5358).
        if self.transport.can_write_eof():
            with suppress(OSError):  # the client has closed it in the meantime
                self.transport.write_eof()
