"""The record of one attempt, and its line in the interaction log; at DEBUG, also one line per delta."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec
import structlog

from headrace.v1 import common_pb2
from headrace.v1.llm_pb2 import LlmDelta
from services.runtime.clock import monotonic_s
from services.runtime.telemetry import names
from services.runtime.telemetry.masking import mask_secrets

if TYPE_CHECKING:
    from services.llm_gateway.telemetry.attempt_span import Answer

log = structlog.get_logger()


class AnswerHead(msgspec.Struct, rename="camel"):
    """The names that a provider gives an answer and its model, wherever one of the protocols has them."""

    id: str | None = None
    model: str | None = None
    response_id: str | None = None
    model_version: str | None = None
    message: AnswerHead | None = None
    response: AnswerHead | None = None

    @property
    def answer_id(self) -> str:
        inner = self.message or self.response
        return inner.answer_id if inner else self.response_id or self.id or ""

    @property
    def answer_model(self) -> str:
        inner = self.message or self.response
        return inner.answer_model if inner else self.model_version or self.model or ""


decode_head = msgspec.json.Decoder(AnswerHead).decode


CANCELLED = "CANCELLED"
"""Outcome of an attempt whose caller left: no error."""


@dataclass(slots=True)
class CallRecord:
    stage: str
    provider: str
    model: str

    attempt: int
    """Number from 1, across all providers of the RPC."""

    operation: str = names.CHAT
    vendor: str = ""
    """OpenTelemetry's name of the provider's vendor."""

    server: str = ""
    """Host of the provider."""

    outcome: str = CANCELLED
    """The finish or error reason; CANCELLED until then."""

    finish_reason: str = ""
    """Empty unless the answer is complete."""

    head: AnswerHead | None = None
    """Read only for spans."""

    started_s: float = field(default_factory=monotonic_s)

    first_delta_s: float | None = None
    """Time on the clock of `started_s`; None before the first delta."""

    deltas: int = 0
    usage: common_pb2.Usage | None = None
    answer: Answer | None = None
    """The answer's texts, if spans record them."""


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
