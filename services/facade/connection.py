"""A client's connection: malformed HTTP is answered in the envelope and logged as one line.

aiohttp's own connections answer in plain text and log a traceback with the user's bytes.
"""

from __future__ import annotations

import asyncio
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
    __slots__ = ("_strangers",)

    def __init__(self, server: web.Server, strangers: Strangers, **settings: Any) -> None:
        super().__init__(server, **settings)
        self._strangers = strangers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._strangers.add_connection(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        if self.transport is not None:
            self._strangers.remove_connection(self.transport)
        super().connection_lost(exc)

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
    answer.headers[hdrs.SERVER] = SERVER  # no application has seen it
    return answer
