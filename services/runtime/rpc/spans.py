"""The server's span of an RPC, in the trace that its metadata names or a new one.

Clients have none: the parent is whatever called.
"""

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
"""Codes that are the server's failures (semantic conventions, RPC, server spans)."""


def start_rpc_span(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> AbstractContextManager[Span]:
    """Start a span for a call of `method`, such as "/headrace.v1.AgentService/Query"."""
    if not spans.is_recording():
        return spans.NO_SPAN
    name = method.removeprefix("/")
    traceparent = next((value for key, value in metadata if key == spans.TRACEPARENT and isinstance(value, str)), "")
    attributes = {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: name, names.REQUEST_ID: call_ids.current_request_id()}
    return spans.start_server_span(name, traceparent, attributes)


def record_outcome(span: Span, code: grpc.StatusCode, reason: str) -> None:
    """Note how the call ended; `reason` is that of an error."""
    if not span.is_recording():
        return
    span.set_attribute(names.RPC_STATUS, code.name)
    if code in FAILURES:
        spans.mark_failed(span, reason or code.name)
