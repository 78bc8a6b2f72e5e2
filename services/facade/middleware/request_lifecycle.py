"""The outermost middleware: request ids, errors in the envelope, one log line per request.

Only this file catches every exception. After the headers are sent, a failing answer just ends; log line and
metric record the status it would have had.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from typing import TypeAlias

import grpc
import structlog
from aiohttp import HttpVersion11, hdrs, web
from opentelemetry.trace import Span

from headrace.errors import CredentialEnded, HeadraceError, from_rpc_error
from services.facade import metrics
from services.facade.requests.body import read_single_header
from services.facade.responses import envelope
from services.runtime.rpc import call_ids
from services.runtime.telemetry import names, spans

REQUEST_ID = "X-Request-Id"

EVENTS = "text/event-stream"

TELL_S = 1.0
"""Maximum wait for the client to take the last frame of a stream ended because its credential has ended."""

SERVER = "headrace"
"""Value of the Server header; the default reveals the library and its version."""

_TRACEPARENT = re.compile(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
"""Format of https://www.w3.org/TR/trace-context/#traceparent-header; other values are dropped."""

_STARTED_RESPONSE, _ID = web.RequestKey("begun", web.StreamResponse), web.RequestKey("id", str)

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

_REDIRECT = web.normalize_path_middleware(
    append_slash=False, remove_slash=True, redirect_class=web.HTTPPermanentRedirect
)

log = structlog.get_logger()


@web.middleware
async def handle_request(request: web.Request, handler: Handler) -> web.StreamResponse:
    started = time.monotonic()
    status, reason = 499, "CANCELLED"
    request[_ID] = _adopt_ids(request)
    route = _find_route(request)
    with open_request_span(request, route) as span:
        try:
            answer, status, reason = await _respond(request, handler)
        finally:
            # This branch is left by cancellation or a broken connection when the client has gone.
            record_outcome(span, status, reason)
            elapsed_s = time.monotonic() - started
            metrics.REQUESTS.labels(route, status).observe(elapsed_s, spans.current_exemplar())
            say = log.debug if route in PROBES else log.info
            say(
                "http done",
                method=request.method,
                route=route,
                status=status,
                reason=reason,
                ms=round(elapsed_s * 1000, 1),
                peer=request.remote,
            )
    return answer


@web.middleware
async def redirect_slashes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Redirect `/v1//models` and `/v1/models/`, which programs make of a base address and a path."""
    if request.path.lstrip("/").startswith("v1/"):
        return await _REDIRECT(request, handler)
    return await handler(request)


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    request[_STARTED_RESPONSE] = response
    if _ID not in request:  # aiohttp refused the Expect header before any middleware
        request[_ID] = _adopt_ids(request)
    response.headers[REQUEST_ID] = request[_ID]
    response.headers[hdrs.SERVER] = SERVER
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"  # no page of another origin can embed our answers
    # A shared cache in front, which may not know that X-API-Key or a cookie names the caller, must keep no answer.
    response.headers.setdefault(hdrs.CACHE_CONTROL, "no-store")
    if request.version < HttpVersion11 and hdrs.CONTENT_LENGTH not in response.headers:
        # The end of the connection is that of the body; aiohttp keeps the connection if the client asks for it.
        response.force_close()


def has_begun(request: web.Request) -> bool:
    """Return whether the headers have been sent, so that the status is final."""
    return _STARTED_RESPONSE in request


async def _respond(request: web.Request, handler: Handler) -> tuple[web.StreamResponse, int, str]:
    """Return the answer, its status and the failure's reason; the status is the failure's even after the headers."""
    try:
        read_single_header(request, REQUEST_ID)
        answer = await handler(request)
        return answer, answer.status, ""
    except HeadraceError as error:
        answer, reason = envelope.wrap_error(error), error.reason
        await _tell_of_end(request, error, answer)
    except grpc.aio.AioRpcError as error:
        answer, reason = envelope.wrap_rpc_error(error), error.code().name
        await _tell_of_end(request, from_rpc_error(error), answer)
    except web.HTTPException as error:
        answer, reason = envelope.wrap_http_error(error), error.reason
    except ConnectionError:
        if not has_begun(request):
            raise
        # aiohttp logs exceptions that leave this handler as our errors; it detects the disconnect itself.
        return request[_STARTED_RESPONSE], 499, "CANCELLED"
    except Exception:
        log.exception("http failed", method=request.method, route=_find_route(request))
        answer, reason = envelope.build_failure(500, "INTERNAL", envelope.INTERNAL), "INTERNAL"
    return request.get(_STARTED_RESPONSE, answer), answer.status, reason


async def _tell_of_end(request: web.Request, error: HeadraceError | None, failure: web.Response) -> None:
    """Write a last frame to an event stream if the caller's credential has ended, which is not an event of the
    run.
    """
    response = request.get(_STARTED_RESPONSE)
    if not isinstance(error, CredentialEnded) or response is None or not isinstance(failure.body, bytes):
        return
    if response.content_type == EVENTS:
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(TELL_S):
                await response.write(b"event: error\ndata: %b\n\n" % failure.body)


def _adopt_ids(request: web.Request) -> str:
    """Adopt the caller's request id and trace parent, or create new ones."""
    given = [(call_ids.REQUEST_ID, request.headers.get(REQUEST_ID, ""))]
    if _TRACEPARENT.fullmatch(traceparent := request.headers.get(call_ids.TRACEPARENT, "")):
        given.append((call_ids.TRACEPARENT, traceparent))
    return call_ids.adopt_metadata([*given, *call_ids.find_mcp_credentials(request.headers.items())])


def _find_route(request: web.Request) -> str:
    """Return the route's annotated path; logs do not repeat unknown paths."""
    resource = request.match_info.route.resource
    return resource.canonical if resource else "unknown"


PROBES = ("/healthz", "/readyz")
"""Paths polled every few seconds; they get no span, and a log line only at DEBUG."""


def open_request_span(request: web.Request, route: str) -> AbstractContextManager[Span]:
    """Open a span without the request's path, which may contain a user's file name."""
    if route in PROBES:
        return spans.NO_SPAN
    attributes = {names.HTTP_METHOD: request.method, names.HTTP_ROUTE: route}
    return spans.start_server_span(
        f"{request.method} {route}", request.headers.get(call_ids.TRACEPARENT, ""), attributes
    )


def record_outcome(span: Span, status: int, reason: str) -> None:
    if not span.is_recording():
        return
    span.set_attributes({names.HTTP_STATUS: status, names.REQUEST_ID: call_ids.current_request_id()})
    if status >= 500:
        spans.mark_failed(span, reason)
