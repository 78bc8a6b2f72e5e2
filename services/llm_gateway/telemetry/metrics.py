"""Prometheus metrics, never written per delta.

Models are labelled with the provider file's names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from services.llm_gateway.telemetry.interaction_log import CANCELLED, CallRecord
from services.runtime.auth import identity
from services.runtime.capacity import InFlightCounter
from services.runtime.clock import monotonic_s
from services.runtime.telemetry import spans

_MODEL = ("provider", "model")
_GEN_AI = ("gen_ai_operation_name", "gen_ai_provider_name", "gen_ai_request_model")
_FIRST_DELTA_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)

OPEN_STREAMS = InFlightCounter()
_OPEN_STREAMS = Gauge("headrace_llm_open_streams", "Streams of callers that are open.")
_OPEN_STREAMS.set_function(lambda: OPEN_STREAMS.count)

RETRIES = Counter("headrace_llm_retries", "Further attempts at the same provider.", (*_MODEL, "reason"))
FAILOVERS = Counter("headrace_llm_failovers", "Calls given on by this model to the next.", (*_MODEL, "reason"))
WAITING = Gauge("headrace_llm_queue_length", "Calls that wait for the account's quota.", ("provider",))

_ATTEMPTS = Counter("headrace_llm_attempts", "Attempts that have ended.", (*_MODEL, "outcome"))
_FIRST_DELTA = Histogram(
    "headrace_llm_first_delta_seconds", "From the attempt's begin to its first delta.", _MODEL, buckets=_FIRST_DELTA_S
)
_DELTAS = Counter("headrace_llm_deltas", "Deltas of attempts that have ended.", _MODEL)
_TOKENS = Counter("headrace_llm_tokens", "Tokens as the provider billed them.", (*_MODEL, "tenant", "kind"))
_COST = Counter("headrace_llm_cost_usd", "Of these tokens, for models that have a price.", (*_MODEL, "tenant"))
_BREAKER = Gauge("headrace_llm_breaker_state", "0 closed, 1 half-open, 2 open.", _MODEL)
_BREAKER_VALUES = {"closed": 0, "half-open": 1, "open": 2}

_DURATION = Histogram(
    "gen_ai_client_operation_duration_seconds",
    "Time of attempts, by OpenTelemetry's conventions for generative AI.",
    (*_GEN_AI, "server_address", "error_type"),
    buckets=(0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92),
)
_TOKEN_USAGE = Histogram(
    "gen_ai_client_token_usage",
    "Tokens of an attempt, by OpenTelemetry's conventions for generative AI.",
    (*_GEN_AI, "gen_ai_token_type"),
    buckets=tuple(4**exponent for exponent in range(14)),
)

SERIES_MAX = 1024
"""Maximum combinations of labels whose series are kept at hand."""


def count_attempt(call: CallRecord, model: str) -> None:
    """Count an attempt that has ended, at the provider file's `model`."""
    labels, exemplar = (call.provider, model), spans.current_exemplar()
    _find_series(_ATTEMPTS, *labels, call.outcome).inc()
    _find_series(_DELTAS, *labels).inc(call.deltas)
    if call.first_delta_s is not None:
        _find_series(_FIRST_DELTA, *labels).observe(call.first_delta_s - call.started_s, exemplar)
    names = (call.operation, call.vendor, model)
    error_type = "" if call.finish_reason or call.outcome == CANCELLED else call.outcome
    _find_series(_DURATION, *names, call.server, error_type).observe(monotonic_s() - call.started_s, exemplar)
    if (usage := call.usage) is not None:
        tenant = identity.label_tenant()
        for kind, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
            _find_series(_TOKENS, *labels, tenant, kind).inc(count)
            if call.finish_reason:
                _find_series(_TOKEN_USAGE, *names, kind).observe(count, exemplar)
        _find_series(_COST, *labels, tenant).inc(usage.cost_usd)


@lru_cache(maxsize=SERIES_MAX)
def _find_series(metric: Any, *labels: str) -> Any:
    """Return a metric's series, which the library finds only by several calls and a lock."""
    return metric.labels(*labels)


def set_breaker_state(state: str, provider: str, model: str) -> None:
    _BREAKER.labels(provider, model).set(_BREAKER_VALUES[state])


def forget_breaker(provider: str, model: str) -> None:
    _BREAKER.remove(provider, model)
