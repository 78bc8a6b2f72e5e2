"""A client's connection: answers malformed HTTP in the envelope and logs one line.

aiohttp's own connections answer in plain text and log a traceback that contains the client's bytes.
"""

from __future__ import annotations

import asyncio
import math
from typing import Any

import structlog
from aiohttp import hdrs, web
from aiohttp.http_exceptions import HttpProcessingError

from headrace.errors import InvalidRequest
from services.facade.middleware.request_lifecycle import SERVER
from services.facade.responses import envelope
from services.facade.strangers import Strangers

REFUSED = "the request is no HTTP that this server takes: a broken line, or a head that is too long"

log = structlog.get_logger()


class Connection(web.RequestHandler):
    __slots__ = ("_look", "_slow_reader_s", "_strangers")

    def __init__(self, server: web.Server, strangers: Strangers, slow_reader_s: float, **settings: Any) -> None:
        """`slow_reader_s` is how long a client may read nothing of an answer before it is disconnected."""
        super().__init__(server, **settings)
        self._strangers = strangers
        self._slow_reader_s = slow_reader_s

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._strangers.add_connection(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.transport is not None:
            self._strangers.remove_connection(self.transport)
        super().connection_lost(exc)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send the answer; disconnect a client that reads nothing, for which aiohttp itself would wait forever."""
        self._look_later(math.inf)
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._look.cancel()

    def _look_later(self, unsent_bytes: float) -> None:
        self._look = asyncio.get_running_loop().call_later(self._slow_reader_s, self._check_reader, unsent_bytes)

    def _check_reader(self, unsent_bytes: float) -> None:
        if self.transport is None:
            return
        if (left := self.transport.get_write_buffer_size()) < unsent_bytes:
            self._look_later(left or math.inf)
            return
        log.info("slow reader dropped", slow_reader_s=self._slow_reader_s)
        self.transport.abort()

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if not isinstance(exc, HttpProcessingError) or request.writer.output_size > 0:
            return set_server_header(super().handle_error(request, status, exc, message))
        log.info("http refused", status=status, reason=type(exc).__name__)
        answer = envelope.build_failure(status, InvalidRequest.reason, REFUSED)
        answer.force_close()
        return set_server_header(answer)


def set_server_header(answer: web.StreamResponse) -> web.StreamResponse:
    answer.headers[hdrs.SERVER] = SERVER  # this answer bypassed the application
    return answer
