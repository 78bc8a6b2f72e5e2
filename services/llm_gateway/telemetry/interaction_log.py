"""The record of one attempt: its line in the interaction log, at DEBUG one per delta, and its span."""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass, field

import structlog
from opentelemetry.trace import SpanKind

from headrace.v1 import common_pb2
from headrace.v1.llm_pb2 import LlmDelta
from services.runtime.clock import monotonic_s
from services.runtime.telemetry import names, spans
from services.runtime.telemetry.masking import mask_secrets

log = structlog.get_logger()


@dataclass(slots=True)
class CallRecord:
    stage: str
    provider: str
    model: str

    attempt: int
    """Number from 1, across all providers of the RPC."""

    outcome: str = "CANCELLED"
    """The finish or error reason; CANCELLED until then."""

    started_s: float = field(default_factory=monotonic_s)

    first_delta_s: float | None = None
    """Time on the clock of `started_s`; None before the first delta."""

    deltas: int = 0
    usage: common_pb2.Usage | None = None


@dataclass(frozen=True, slots=True)
class InteractionLog:
    is_enabled: bool
    masks_sensitive: bool

    def log_call(self, call: CallRecord) -> None:
        if not self.is_enabled:
            return
        now_s = monotonic_s()
        first_ms = None if call.first_delta_s is None else _round_ms(call.first_delta_s - call.started_s)
        usage = call.usage
        log.info(
            "model called",
            stage=call.stage,
            provider=call.provider,
            model=call.model,
            attempt=call.attempt,
            outcome=call.outcome,
            deltas=call.deltas,
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
            first_delta_ms=first_ms,
            ms=_round_ms(now_s - call.started_s),
        )

    def wrap_send(self, send: Callable[[bytes], bool], secrets: Sequence[str]) -> Callable[[bytes], bool]:
        """Wrap `send` at DEBUG to log deltas; the level is read once per stream."""
        if not (self.is_enabled and log.is_enabled_for(logging.DEBUG)):
            return send
        # A pooled connection's callbacks run in the context of the call that opened it, possibly another one.
        context = copy_context()

        def log_and_send(message: bytes) -> bool:
            delta = LlmDelta.FromString(message)
            kind = delta.WhichOneof("delta") or ""
            if kind == "tool_call":
                call = delta.tool_call
                fields = {"kind": kind, "call_id": call.id, "tool": call.name, "value": call.arguments}
            elif kind == "media":
                media = delta.media
                fields = {"kind": kind, "value": media.problem or f"{media.mime_type}, {len(media.data)} bytes"}
            else:
                fields = {"kind": kind, "value": str(getattr(delta, kind))}
            if self.masks_sensitive:
                fields = {name: mask_secrets(text, *secrets) for name, text in fields.items()}
            context.run(log.debug, "delta", **fields)
            return send(message)

        return log_and_send


def _round_ms(seconds: float) -> float:
    return round(seconds * 1000, 1)


@contextmanager
def tracing_attempt(call: CallRecord, operation: str = names.CHAT) -> Generator[None]:
    attributes = {
        names.OPERATION: operation,
        names.PROVIDER: call.provider,
        names.REQUEST_MODEL: call.model,
        names.STAGE: call.stage,
        names.ATTEMPT: call.attempt,
    }
    with spans.start_span(f"{operation} {call.model}", attributes, SpanKind.CLIENT) as span:
        try:
            yield
        finally:
            if span.is_recording():
                span.set_attributes(_describe_result(call))


def _describe_result(call: CallRecord) -> spans.Attributes:
    told: dict[str, int | float | list[str]] = {names.FINISH_REASONS: [call.outcome], names.DELTAS: call.deltas}
    if call.first_delta_s is not None:
        told[names.FIRST_CHUNK_S] = call.first_delta_s - call.started_s
    if call.usage is not None:
        told[names.INPUT_TOKENS] = call.usage.input_tokens
        told[names.OUTPUT_TOKENS] = call.usage.output_tokens
        told[names.COST_USD] = call.usage.cost_usd
    return told
