"""The server's span of an RPC; clients have none."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager

import grpc
from opentelemetry.trace import Span

from services.runtime.rpc import call_ids
from services.runtime.telemetry import names, spans

FAILURES = frozenset(
    {
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNIMPLEMENTED,
        grpc.StatusCode.INTERNAL,
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DATA_LOSS,
    }
)
"""Failures of the server (semantic conventions, RPC, server spans)."""


def start_rpc_span(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> AbstractContextManager[Span]:
    """Start a span for a call of `method`, such as "/headrace.v1.AgentService/Query"."""
    if not spans.is_recording():
        return spans.NO_SPAN
    name = method.removeprefix("/")
    traceparent = next((value for key, value in metadata if key == spans.TRACEPARENT and isinstance(value, str)), "")
    attributes = {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: name, names.REQUEST_ID: call_ids.current_request_id()}
    return spans.start_server_span(name, traceparent, attributes)


def record_outcome(span: Span, code: grpc.StatusCode, reason: str) -> None:
    if not span.is_recording():
        return
    span.set_attribute(names.RPC_STATUS, code.name)
    if code in FAILURES:
        spans.mark_failed(span, reason or code.name)
