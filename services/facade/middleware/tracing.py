"""The span of an HTTP request, in its caller's trace or in a new one."""

from __future__ import annotations

from contextlib import AbstractContextManager

from aiohttp import web
from opentelemetry.trace import Span

from services.runtime.rpc import call_ids
from services.runtime.telemetry import names, spans

PROBES = ("/healthz", "/readyz")
"""Paths polled every few seconds, which get no span and a log line only at DEBUG."""


def open_request_span(request: web.Request, route: str) -> AbstractContextManager[Span]:
    """Open a span without the request's path, which may name a user's file."""
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
