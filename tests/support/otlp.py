"""A trace collector that stores what OTLP exporters send over HTTP."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as Sent
from opentelemetry.proto.trace.v1.trace_pb2 import Status

from tests.support.web_server import serving_web

WAIT_S = 100.0


@dataclass(frozen=True, slots=True)
class Span:
    """A received span; ids are in hexadecimal."""

    service: str
    name: str
    kind: str
    trace_id: str
    span_id: str
    parent_id: str
    failed: bool
    attributes: dict[str, Any]
    links: tuple[tuple[str, str], ...]
    """Trace and span ids."""
    said: bytes
    """The whole span as received."""


@dataclass(slots=True)
class Collector:
    """Keeps spans in the order they came."""

    endpoint: str = ""
    spans: list[Span] = field(default_factory=list[Span])

    def named(self, name: str) -> list[Span]:
        return [span for span in self.spans if span.name == name]

    def of(self, trace_id: str) -> list[Span]:
        return [span for span in self.spans if span.trace_id == trace_id]

    async def until(self, has_come: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not has_come():
                await asyncio.sleep(0.02)

    async def take(self, request: web.Request) -> web.Response:
        sent = ExportTraceServiceRequest.FromString(await request.read())
        for of_resource in sent.resource_spans:
            resource = {item.key: _value(item.value) for item in of_resource.resource.attributes}
            for of_scope in of_resource.scope_spans:
                self.spans += [_span(str(resource["service.name"]), span) for span in of_scope.spans]
        return web.Response(content_type="application/x-protobuf")


@asynccontextmanager
async def collector(port: int = 0) -> AsyncGenerator[Collector]:
    """Run a collector inside the block; its `endpoint` is the value for OTEL_EXPORTER_OTLP_ENDPOINT."""
    receiver = Collector()
    async with serving_web(receiver.take, port) as listening:
        receiver.endpoint = f"http://127.0.0.1:{listening}"
        yield receiver


def _span(service: str, sent: Sent) -> Span:
    return Span(
        service=service,
        name=sent.name,
        kind=Sent.SpanKind.Name(sent.kind).removeprefix("SPAN_KIND_"),
        trace_id=sent.trace_id.hex(),
        span_id=sent.span_id.hex(),
        parent_id=sent.parent_span_id.hex(),
        failed=sent.status.code == Status.STATUS_CODE_ERROR,
        attributes={item.key: _value(item.value) for item in sent.attributes},
        links=tuple((link.trace_id.hex(), link.span_id.hex()) for link in sent.links),
        said=sent.SerializeToString(),
    )


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None
