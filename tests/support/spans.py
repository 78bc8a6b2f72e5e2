"""The spans of the test's own process, stored in memory."""

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from services.runtime.telemetry import spans

WAIT_S = 50.0


class Recorded:
    """Recorded spans in the order of their ends."""

    def __init__(self, exporter: InMemorySpanExporter) -> None:
        self._exporter = exporter

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()

    @property
    def names(self) -> list[str]:
        return [span.name for span in self.spans]

    def only(self, name: str) -> ReadableSpan:
        (span,) = [span for span in self.spans if span.name == name]
        return span

    def above(self, span: ReadableSpan) -> list[str]:
        """Names from a span's parent to its trace's root."""
        by_id = {other.context.span_id: other for other in self.spans if other.context is not None}
        found: list[str] = []
        while span.parent is not None and span.parent.span_id in by_id:
            span = by_id[span.parent.span_id]
            found.append(span.name)
        return found

    async def until(self, has_come: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not has_come():
                await asyncio.sleep(0.005)


@contextmanager
def recording() -> Generator[Recorded]:
    """Record spans inside the block."""
    exporter = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    spans.set_tracer(provider.get_tracer("test"))
    try:
        yield Recorded(exporter)
    finally:
        spans.set_tracer(None)
