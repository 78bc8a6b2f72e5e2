"""One streamed answer over HTTP/1.1, read straight from its socket: the direct reader, and that of the peers."""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import httptools

from benchmarks.arrivals import MARK, Arrivals, Stream


async def read_http(url: str, body: bytes, arrivals: Arrivals, stream: Stream) -> None:
    """Ask once, on a connection of its own, and read to the end.

    Raises:
        ConnectionError: The answer was not a 200, or was cut.
    """
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    request = (
        f"POST {parts.path} HTTP/1.1\r\nHost: {host}:{port}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    ).encode()
    answer = _Answer(arrivals, stream)
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: answer, host, port)
    transport.write(request + body)
    try:
        await answer.ended
    finally:
        transport.abort()


class _Answer(asyncio.Protocol):
    """Fed by its connection; `on_…` are httptools' names."""

    def __init__(self, arrivals: Arrivals, stream: Stream) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrivals = arrivals
        self._stream = stream
        self._parser = httptools.HttpResponseParser(self)
        self._tail = b""
        """The last bytes of the body: a mark may be cut in two by a read."""

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_exception(exc or ConnectionError("the answer was cut"))

    def on_headers_complete(self) -> None:
        if (status := self._parser.get_status_code()) != 200 and not self.ended.done():
            self.ended.set_exception(ConnectionError(f"answered {status}"))
        self._arrivals.begin(self._stream)

    def on_body(self, body: bytes) -> None:
        body = self._tail + body
        if count := body.count(MARK):
            self._arrivals.arrived(self._stream, count)
        self._tail = body[1 - len(MARK) :]

    def on_message_complete(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
