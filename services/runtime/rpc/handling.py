"""The block around every RPC: context ids, span, errors to statuses, count, one log line."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeAlias

import grpc
import structlog
from opentelemetry.trace import Span
from prometheus_client import Gauge, Histogram

from headrace.errors import HeadraceError, to_status
from services.runtime.capacity import InFlightCounter
from services.runtime.clock import monotonic_s
from services.runtime.ending import release_frames
from services.runtime.rpc import call_ids
from services.runtime.telemetry import names, spans

Context: TypeAlias = grpc.aio.ServicerContext[Any, Any]

STATUS_DETAILS = "grpc-status-details-bin"

RETRY_AT_ONCE = (("grpc-retry-pushback-ms", "0"),)
"""Trailer with which a server makes our channels call another replica."""

HANG_UP_S = 0.1
"""Wait for the cancellation after a failed write; a turn of the loop was not always enough (grpcio 1.85, uvloop)."""

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
"""Statuses that count as server failures (semantic conventions, RPC, server spans)."""

RPCS = Histogram(
    "headrace_rpc_duration_seconds",
    "Time of RPCs that have ended; those of gRPC itself are not among them.",
    ("method", "code"),
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300),
)
OPEN_STREAMS = InFlightCounter()
"""Streaming RPCs of all servers of the process that are open."""

_OPEN_STREAMS = Gauge("headrace_rpc_open_streams", "Streaming RPCs that are open.")
_OPEN_STREAMS.set_function(lambda: OPEN_STREAMS.count)

IS_INNER: ContextVar[bool] = ContextVar("is_inner", default=False)
"""Whether a service of the suite makes the call of this task."""

log = structlog.get_logger()


class HandlingRpc:
    """The block around a handler, which counts its `replies` here; an error inside ends the call with its status."""

    __slots__ = ("_context", "_method", "_peer", "_span", "_spanning", "_started_s", "replies")

    def __init__(self, method: str, context: Context) -> None:
        self._method = method
        self._context = context
        self.replies = 0

    async def __aenter__(self) -> HandlingRpc:
        self._started_s = monotonic_s()
        self._peer = self._context.peer()  # empty once the client has gone
        metadata = self._context.invocation_metadata() or ()
        call_ids.adopt_metadata(metadata)
        self._spanning = _start_span(self._method, metadata) if spans.is_recording() else None
        self._span = None if self._spanning is None else self._spanning.__enter__()
        return self

    async def __aexit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        code, reason, ending = grpc.StatusCode.OK, "", None
        try:
            if error is not None:
                code, reason, ending = await self._translate_error(error)
                if ending is not None:
                    release_frames(error)
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        finally:
            is_ok = code is grpc.StatusCode.OK
            name = "OK" if is_ok else code.name
            elapsed_s = monotonic_s() - self._started_s
            exemplar = None
            if self._span is not None:
                self._span.set_attribute(names.RPC_STATUS, name)
                if code in FAILURES:
                    spans.mark_failed(self._span, reason or name)
                exemplar = spans.current_exemplar()
            _find_histogram(self._method, name).observe(elapsed_s, exemplar)
            # A run makes some ten inner calls, and a log line costs more than most of them (12 % of a run's CPU,
            # 2026-11).
            say = log.debug if is_ok and IS_INNER.get() else log.info
            ms = round(elapsed_s * 1000, 1)
            say("rpc done", method=self._method, code=name, ms=ms, replies=self.replies, peer=self._peer)
            if self._spanning is not None:
                self._spanning.__exit__(kind, error, traceback)
        if ending is not None:
            await self._context.abort(code, *ending)

    async def _translate_error(self, error: BaseException) -> tuple[grpc.StatusCode, str, tuple[Any, ...] | None]:
        """Return the error's status, its reason, and details and trailers to end the call with; None: it ends by
        `error` itself."""
        match error:
            case HeadraceError():
                status = to_status(error)
                elsewhere = RETRY_AT_ONCE if error.retry_after_s == 0 else ()
                trailers = ((STATUS_DETAILS, status.SerializeToString()), *elsewhere)
                return error.code, error.reason, (status.message, trailers)
            case grpc.aio.AioRpcError():
                # A peer's status that is not one of ours: our deadline passed, or the peer has a bug and has logged it.
                return error.code(), "", (error.details() or "a peer failed",)
            case grpc.aio.AbortError():
                # A handler of another protocol has reported its failure in that protocol's form.
                given: Any = self._context.code()
                return next(code for code in grpc.StatusCode if given in (code, code.value[0])), "", None
            case NotImplementedError():
                # The generated base class raises this for an RPC that a service does not implement.
                return grpc.StatusCode.UNIMPLEMENTED, "", (f"{self._method} is not implemented",)
            case Exception():
                # A write to a vanished client first fails with a private error, and its cancellation arrives a little
                # later. Wait for it; otherwise hang-ups would be reported as bugs.
                await asyncio.sleep(HANG_UP_S)
                log.exception("rpc failed", method=self._method)
                return grpc.StatusCode.INTERNAL, "", ("internal error",)
            case _:
                return grpc.StatusCode.CANCELLED, "", None


def _start_span(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> AbstractContextManager[Span]:
    """Start a span for a call of `method`, such as "/headrace.v1.AgentService/Query"."""
    name = method.removeprefix("/")
    traceparent = next((value for key, value in metadata if key == spans.TRACEPARENT and isinstance(value, str)), "")
    attributes = {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: name, names.REQUEST_ID: call_ids.current_request_id()}
    return spans.start_server_span(name, traceparent, attributes)


@cache  # bounded by the numbers of methods and codes
def _find_histogram(method: str, code: str) -> Histogram:
    return RPCS.labels(method, code)
