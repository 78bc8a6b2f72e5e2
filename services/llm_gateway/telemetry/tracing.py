"""The span of one attempt, by the GenAI conventions."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry.trace import SpanKind

from services.runtime.telemetry import names, spans

if TYPE_CHECKING:
    from services.llm_gateway.telemetry.interaction_log import CallRecord


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
