"""The socket of a connection to a provider."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from services.llm_gateway.http.response import Response

if TYPE_CHECKING:
    from collections.abc import Sequence

    from services.llm_gateway.http.request import Origin


class Connection(asyncio.Protocol):
    """A connection belongs to one call at a time, or to the pool."""

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
        """Release the response and watch for the server closing."""
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
        """Close at once, dropping unsent data."""
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
            self.abort()  # it would be taken for the answer to the next request
        else:
            self._response.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._response is not None:
            self._response.on_connection_lost(exc)
