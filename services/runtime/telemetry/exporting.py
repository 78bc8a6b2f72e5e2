"""Exports spans from a bounded queue, on OpenTelemetry's thread; imported only if an endpoint is set.

The SDK reads its own settings (OTEL_*). An unreachable collector causes one log line when that begins and one when it
ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import structlog
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.trace import Tracer

from services.runtime.telemetry.names import SCHEMA_URL

LAST_SPANS_S = 3.0
"""Time for the last spans; together with the drain it is within compose's stop_grace_period."""

CHATTER = ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal")
"""Loggers with a line for each refused batch or span."""

log = structlog.get_logger()


@asynccontextmanager
async def exporting_spans(service: str) -> AsyncGenerator[Tracer]:
    """Yield a tracer that exports its spans; raises OSError for wrong settings."""
    for name in CHATTER:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    ours = {"service.name": f"headrace-{service.replace('_', '-')}", "service.instance.id": str(uuid.uuid4())}
    # The environment is merged after our values, so that it takes precedence.
    resource = Resource(ours).merge(OTELResourceDetector().detect())
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    try:
        exporter = _QuietExporter(OTLPSpanExporter())
        # Its queue holds OTEL_BSP_MAX_QUEUE_SIZE spans, 2048 by default; the oldest are dropped.
        provider.add_span_processor(BatchSpanProcessor(exporter))
    except ValueError as error:
        raise OSError(f"a variable OTEL_… has a wrong value: {error}") from error
    try:
        yield provider.get_tracer("headrace", schema_url=SCHEMA_URL)
    finally:
        # In a separate thread that the process does not wait for at its end: a request that hangs takes its own
        # timeout.
        last = threading.Thread(target=provider.shutdown, daemon=True)
        last.start()
        await asyncio.to_thread(last.join, 0 if exporter.is_failing else LAST_SPANS_S)


class _QuietExporter(SpanExporter):
    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter = exporter
        self._lost: int | None = None
        """Spans lost since the last success; None while exports succeed."""

    @property
    def is_failing(self) -> bool:
        return self._lost is not None

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        if result is not SpanExportResult.SUCCESS:
            if self._lost is None:
                log.warning("spans not exported", until="the collector takes them")
            self._lost = (self._lost or 0) + len(spans)
        elif self._lost is not None:
            log.info("spans exported again", lost=self._lost)
            self._lost = None
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()
