"""The block around every RPC: context ids, span, errors to statuses, count, one log line."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeAlias

import grpc
import structlog
from opentelemetry.trace import Span
from prometheus_client import Gauge, Histogram

from headrace.errors import HeadraceError, to_status
from services.runtime.clock import monotonic_s
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
OPEN_STREAMS = Gauge("headrace_rpc_open_streams", "Streaming RPCs that are open.")

IS_INNER: ContextVar[bool] = ContextVar("is_inner", default=False)
"""Whether a service of the suite makes the call of this task."""

log = structlog.get_logger()


@asynccontextmanager
async def handling_rpc(method: str, context: Context) -> AsyncGenerator[dict[str, int]]:
    """Yield an object in which the handler counts its `replies`; an error inside the block ends the call with its
    status."""
    started = monotonic_s()
    done, code, reason = {"replies": 0}, grpc.StatusCode.OK, ""
    peer = context.peer()  # empty once the client has gone
    metadata = context.invocation_metadata() or ()
    call_ids.adopt_metadata(metadata)
    structlog.contextvars.bind_contextvars(**call_ids.get_log_fields())  # in the RPC's own task, for as long as it runs
    with _start_span(method, metadata) as span:
        try:
            yield done
        except HeadraceError as error:
            code, reason = error.code, error.reason
            status = to_status(error)
            elsewhere = RETRY_AT_ONCE if error.retry_after_s == 0 else ()
            await context.abort(code, status.message, ((STATUS_DETAILS, status.SerializeToString()), *elsewhere))
        except asyncio.CancelledError:
            code = grpc.StatusCode.CANCELLED
            raise
        except grpc.aio.AioRpcError as error:
            # A peer's status that is not one of ours: our deadline passed, or the peer has a bug and has logged it.
            code = error.code()
            await context.abort(code, error.details() or "a peer failed")
        except grpc.aio.AbortError:
            # A handler of another protocol has reported its failure in that protocol's form.
            given: Any = context.code()
            code = next(code for code in grpc.StatusCode if given in (code, code.value[0]))
            raise
        except NotImplementedError:
            # The generated base class raises this for an RPC that a service does not implement.
            code = grpc.StatusCode.UNIMPLEMENTED
            await context.abort(code, f"{method} is not implemented")
        except Exception:
            # A write to a vanished client first fails with a private error, and its cancellation arrives a little
            # later. Wait for it; otherwise hang-ups would be reported as bugs.
            code = grpc.StatusCode.CANCELLED
            await asyncio.sleep(HANG_UP_S)
            code = grpc.StatusCode.INTERNAL
            log.exception("rpc failed", method=method)
            await context.abort(code, "internal error")
        finally:
            if span.is_recording():
                span.set_attribute(names.RPC_STATUS, code.name)
                if code in FAILURES:
                    spans.mark_failed(span, reason or code.name)
            elapsed_s = monotonic_s() - started
            _find_histogram(method, code).observe(elapsed_s, spans.current_exemplar())
            elapsed_ms = round(elapsed_s * 1000, 1)
            # A run makes some ten inner calls, and a log line costs more than most of them (12 % of a run's CPU,
            # 2026-11).
            say = log.debug if IS_INNER.get() and code is grpc.StatusCode.OK else log.info
            say("rpc done", method=method, code=code.name, ms=elapsed_ms, replies=done["replies"], peer=peer)


def _start_span(method: str, metadata: Iterable[tuple[str, str | bytes]]) -> AbstractContextManager[Span]:
    """Start a span for a call of `method`, such as "/headrace.v1.AgentService/Query"."""
    if not spans.is_recording():
        return spans.NO_SPAN
    name = method.removeprefix("/")
    traceparent = next((value for key, value in metadata if key == spans.TRACEPARENT and isinstance(value, str)), "")
    attributes = {names.RPC_SYSTEM: "grpc", names.RPC_METHOD: name, names.REQUEST_ID: call_ids.current_request_id()}
    return spans.start_server_span(name, traceparent, attributes)


@cache  # bounded by the numbers of methods and codes
def _find_histogram(method: str, code: grpc.StatusCode) -> Histogram:
    return RPCS.labels(method, code.name)
