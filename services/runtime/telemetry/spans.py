"""Spans for a service's code, the trace context that calls carry, and the switch that turns recording on.

The current span is a context variable, which tasks inherit.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Generator, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from contextvars import ContextVar
from typing import TypeAlias

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from headrace.errors import HeadraceError
from services.runtime.telemetry.masking import mask_secrets
from services.runtime.telemetry.names import ERROR_TYPE

Attributes: TypeAlias = Mapping[str, str | bool | int | float | Sequence[str]]

NO_SPAN = nullcontext(trace.INVALID_SPAN)

_W3C = TraceContextTextMapPropagator()
"""Reads and writes traceparent (https://www.w3.org/TR/trace-context); a malformed one begins a trace."""

TRACEPARENT = "traceparent"

CONTENT_CHARS_MAX = 128 * 1024
"""Characters that a span records of a text; of a request, of all its texts together, the last ones."""

_TRACER: ContextVar[Tracer | None] = ContextVar("_TRACER", default=None)
"""Each service has its own, even if several share a process."""


_CAPTURES_CONTENT: ContextVar[bool] = ContextVar("_CAPTURES_CONTENT", default=False)


def set_tracer(tracer: Tracer | None, *, captures_content: bool = False) -> None:
    """Set the tracer for the current task and the tasks that it starts from now on."""
    _TRACER.set(tracer)
    _CAPTURES_CONTENT.set(captures_content)


def start_server_span(name: str, traceparent: str, attributes: Attributes) -> AbstractContextManager[Span]:
    """Start a request's span in the trace that it names (empty: a new one); the caller marks errors."""
    if (tracer := _TRACER.get()) is None:
        return NO_SPAN
    span = tracer.start_span(name, _extract_context(traceparent), SpanKind.SERVER, attributes)
    return trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False)


def start_span(name: str, attributes: Attributes, kind: SpanKind = SpanKind.INTERNAL) -> AbstractContextManager[Span]:
    """Start a span for a part of the current work; errors are marked."""
    tracer = _TRACER.get()
    return NO_SPAN if tracer is None else _marking_failure(tracer.start_span(name, None, kind, attributes))


def start_linked_span(name: str, traceparent: str, attributes: Attributes) -> AbstractContextManager[Span]:
    """Start a new trace with a link to that of `traceparent` (empty: unknown)."""
    if (tracer := _TRACER.get()) is None:
        return NO_SPAN
    linked = trace.get_current_span(_extract_context(traceparent)).get_span_context()
    links = [Link(linked)] if linked.is_valid else []
    return _marking_failure(tracer.start_span(name, Context(), SpanKind.INTERNAL, attributes, links))


def mark_failed(span: Span, reason: str) -> None:
    """Mark `span` as failed by an error's reason or class, never its text."""
    span.set_attribute(ERROR_TYPE, reason)
    span.set_status(Status(StatusCode.ERROR))


def is_recording() -> bool:
    return _TRACER.get() is not None


def captures_content() -> bool:
    """Return whether spans record the texts of people, models and tools, which the operator must ask for."""
    return _CAPTURES_CONTENT.get()


def limit_content(text: str) -> str:
    """Return a text as a span records it: its beginning, without credentials."""
    return mask_secrets(text[:CONTENT_CHARS_MAX])


def current_exemplar() -> dict[str, str] | None:
    """Return the sampled trace that an observation belongs to; None without one."""
    if _TRACER.get() is None or not (context := trace.get_current_span().get_span_context()).trace_flags.sampled:
        return None
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def current_traceparent() -> str:
    if _TRACER.get() is None:
        return ""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier)
    return carrier.get(TRACEPARENT, "")


def get_log_fields() -> dict[str, str]:
    if _TRACER.get() is None or not (context := trace.get_current_span().get_span_context()).is_valid:
        return {}
    return {"trace_id": trace.format_trace_id(context.trace_id), "span_id": trace.format_span_id(context.span_id)}


def _extract_context(traceparent: str) -> Context:
    return _W3C.extract({TRACEPARENT: traceparent}, Context())


@contextmanager
def _marking_failure(span: Span) -> Generator[Span]:
    with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
        try:
            yield span
        except asyncio.CancelledError:
            raise  # not an error
        except HeadraceError as error:
            mark_failed(span, error.reason)
            raise
        except Exception as error:
            mark_failed(span, type(error).__name__)
            raise


ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")

_URL = re.compile(r"https?://[^/?#\s]+\S*", re.IGNORECASE)


def is_enabled(env: Mapping[str, str]) -> bool:
    if env.get("OTEL_SDK_DISABLED", "").strip().lower() == "true" or env.get("OTEL_TRACES_EXPORTER") == "none":
        return False
    return any(env.get(name) for name in ENDPOINTS)


def check_endpoints(env: Mapping[str, str]) -> None:
    """Raise ValueError for an invalid endpoint, with which exports would fail silently."""
    for name in ENDPOINTS:
        if is_enabled(env) and (endpoint := env.get(name)) and not _URL.fullmatch(endpoint):
            raise ValueError(f"{name}: {endpoint!r}: expected an address such as http://127.0.0.1:4318")


CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""OpenTelemetry's variable with which an operator asks for the texts; off by default."""

CAPTURE_VALUES = ("true", "span_only", "span_and_event")


@asynccontextmanager
async def recording_spans(service: str, env: Mapping[str, str]) -> AsyncGenerator[None]:
    if not is_enabled(env):
        yield
        return
    # Its import takes a tenth of a second.
    from services.runtime.telemetry.exporting import exporting_spans

    async with exporting_spans(service) as tracer:
        set_tracer(tracer, captures_content=env.get(CAPTURE, "").strip().lower() in CAPTURE_VALUES)
        try:
            yield
        finally:
            set_tracer(None)
