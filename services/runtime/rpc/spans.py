"""The span of an RPC, in its server: in the trace that its metadata names, or the first of a new one.

Clients have none: a call's span in its server is the child of whatever called.
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
"""Codes that are the server's failures; the others are the caller's (semantic conventions, RPC, server spans)."""


def start_rpc_span(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> AbstractContextManager[Span]:
    """A span for a call of `method`, "/headrace.v1.AgentService/Query"."""
    if not spans.is_recording():
        return spans.NO_SPAN
    name = method.removeprefix("/")
    traceparent = next((value for key, value in metadata if key == spans.TRACEPARENT and isinstance(value, str)), "")
    attributes = {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: name, names.REQUEST_ID: call_ids.current_request_id()}
    return spans.start_server_span(name, traceparent, attributes)


def record_outcome(span: Span, code: grpc.StatusCode, reason: str) -> None:
    """Note how the call ended; `reason` is an error's, where it has one."""
    if not span.is_recording():
        return
    span.set_attribute(names.RPC_STATUS, code.name)
    if code in FAILURES:
        spans.mark_failed(span, reason or code.name)
