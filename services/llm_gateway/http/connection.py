"""A connection to a provider, and one response on it; the socket's callback pushes the response's body."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

import httptools

from services.llm_gateway.http.request import Origin

OVERHEAD_BYTES_MAX = 64 * 1024
"""Limit of consecutive bytes outside the body."""


class Connection(asyncio.Protocol):
    """A connection, which belongs to one call at a time or to the pool."""

    def __init__(self, origin: Origin) -> None:
        self.origin = origin
        self._transport: asyncio.Transport | None = None
        # Exists from the start: a server may send bytes, or close, before the first request.
        self._response: Response | None = Response(self)

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send_request(self, message: Sequence[bytes]) -> Response:
        """Send a request and return its incomplete response."""
        assert self._transport is not None
        response = self._response = self._response or Response(self)
        self._transport.writelines(message)
        return response

    def become_idle(self) -> None:
        """Release the response and watch for the server's close."""
        self._release_response()
        self.resume_reading()

    def close(self) -> None:
        self._release_response()
        self.abort()

    def pause_reading(self) -> None:
        if self.is_open and self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self.is_open and self._transport is not None:
            self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once and drop unsent data."""
        if self._transport is not None:
            self._transport.abort()

    def _release_response(self) -> None:
        if self._response is not None:
            self._response.release_parser()
            self._response = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._response is None:
            self.abort()  # otherwise it would be taken for the answer to the next request
        else:
            self._response.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None:
            self._response.on_connection_lost(exc)


class Response:
    """A response to one request.

    The parser calls the `on_` methods, the connection `feed_data` and `on_connection_lost`.
    """

    __slots__ = (
        "_connection",
        "_error",
        "_held",
        "_is_stopped",
        "_is_until_close",
        "_loop",
        "_overhead_bytes",
        "_parser",
        "_take",
        "_waiter",
        "headers",
        "is_complete",
        "is_reusable",
        "last_read_s",
        "status",
    )

    def __init__(self, connection: Connection) -> None:
        self.status = 0
        """HTTP status; 0 before the head has arrived."""
        self.headers: dict[str, str] = {}
        """Headers by lower-case name; the last of repeated values counts."""
        self.last_read_s: float | None = None
        self.is_complete = False
        self.is_reusable = False
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpResponseParser(self)
        self._take: Callable[[bytes], bool] | None = None
        self._held: list[bytes] = []
        """Body bytes that arrived with the head."""
        self._overhead_bytes = 0
        self._is_until_close = False
        self._is_stopped = False
        self._error: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    async def read_head(self) -> None:
        """Wait for status and headers, skipping those of a 1xx.

        Raises:
            OSError: The connection broke.
            HttpParserError: The bytes are not HTTP.
        """
        while not self.status and self._error is None:
            await self._wait_for_wake()
        if not self.status and self._error is not None:
            raise self._error

    async def push_body(self, take: Callable[[bytes], bool]) -> bool:
        """Push the body to `take` until it returns False; return False at the body's end.

        `take` runs in the socket's callback. After False the current read is still pushed whole. An exception of `take`
        is raised here.

        Raises:
            OSError: The connection broke.
            HttpParserError: The bytes are not HTTP.
        """
        self._take, self._is_stopped = take, False
        held, self._held = self._held, []
        for piece in held:
            self.on_body(piece)
        if not self._is_stopped:
            self._connection.resume_reading()
        while not (self._is_stopped or self.is_complete or self._error):
            await self._wait_for_wake()
        if self._error is not None and not (self._is_stopped or self.is_complete):
            raise self._error
        return self._is_stopped

    def stop(self) -> None:
        """Let `push_body` return as if `take` had stopped it."""
        self._is_stopped = True
        self._connection.pause_reading()
        self._wake()

    def fail(self, error: BaseException) -> None:
        """Close the connection; `read_head` and `push_body` raise `error`."""
        self.is_reusable = False
        self._error = self._error or error
        self._connection.abort()
        self._wake()

    def release_parser(self) -> None:
        """Break the reference cycles that would keep all read bytes until a garbage collection."""
        del self._parser
        self._error = self._take = None

    def feed_data(self, data: bytes) -> None:
        self.last_read_s = self._loop.time()
        self._overhead_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            # The parser's own error says only that a callback failed.
            self.fail(error.__context__ or error)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.fail(error)
        if self._overhead_bytes > OVERHEAD_BYTES_MAX:
            self.fail(httptools.HttpParserError("endless head, chunk extension or trailer"))

    def on_connection_lost(self, error: Exception | None) -> None:
        if self._is_until_close and error is None and self._error is None:
            self.is_complete = True
            self._wake()
        elif not self.is_complete:
            self.fail(error or ConnectionResetError("closed before the response was complete"))

    def on_message_begin(self) -> None:
        if self.is_complete:
            raise httptools.HttpParserError("a second response to one request")

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self.status:  # later fields are trailers
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            self.headers.clear()
            return
        self.status = status
        codings = self.headers.get("transfer-encoding", "").lower()
        self._is_until_close = "content-length" not in self.headers and not codings.endswith("chunked")
        self._connection.pause_reading()
        self._wake()

    def on_body(self, piece: bytes) -> None:
        self._overhead_bytes = 0
        if self._take is None:
            self._held.append(piece)
        elif not self._take(piece):
            self.stop()

    def on_message_complete(self) -> None:
        if self.status:
            self.is_complete = True
            self.is_reusable = self._parser.should_keep_alive()
            self._wake()

    async def _wait_for_wake(self) -> None:
        self._waiter = self._loop.create_future()
        await self._waiter

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
