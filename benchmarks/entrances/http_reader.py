"""Asks questions over HTTP/1.1, reading the socket directly; a stream's connection is reused for its next
question.
"""

from __future__ import annotations

import asyncio
from typing import cast
from urllib.parse import urlsplit

import httptools

from benchmarks.entrances.arrivals import Arrivals, Stream


class HttpReader:
    """One connection, reused for all questions of a stream."""

    def __init__(self, url: str, body: bytes, arrivals: Arrivals) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._request = (
            f"POST {parts.path} HTTP/1.1\r\nHost: {self._host}:{self._port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        ).encode() + body
        self._arrivals = arrivals
        self._connection: _Connection | None = None

    async def ask(self) -> None:
        """Ask once, and read the answer to its end.

        Raises:
            ConnectionError: The answer was not a 200, or was cut off.
        """
        if self._connection is None or self._connection.is_lost:
            loop = asyncio.get_running_loop()
            _, self._connection = await loop.create_connection(_Connection, self._host, self._port)
        try:
            await self._connection.ask(self._request, Stream(self._arrivals))
        except BaseException:
            self._connection.abort()
            raise


class _Connection(asyncio.Protocol):
    """The `on_…` methods are httptools' callbacks."""

    def __init__(self) -> None:
        self.is_lost = False
        self._stream: Stream | None = None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def ask(self, request: bytes, stream: Stream) -> None:
        self._stream = stream
        self._ended = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        self._transport.write(request)
        await self._ended

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if not self._ended.done():
            self._ended.set_exception(exc or ConnectionError("the answer was cut"))

    def on_headers_complete(self) -> None:
        if (status := self._parser.get_status_code()) != 200 and not self._ended.done():
            self._ended.set_exception(ConnectionError(f"answered {status}"))

    def on_body(self, body: bytes) -> None:
        assert self._stream is not None
        self._stream.take(body)

    def on_message_complete(self) -> None:
        if not self._parser.should_keep_alive():
            self._transport.close()
            self.is_lost = True
        if not self._ended.done():
            self._ended.set_result(None)
