"""Prometheus metrics, never written per delta.

Models are labelled with the provider file's names.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from prometheus_client import Counter, Gauge, Histogram

from headrace.v1 import common_pb2
from services.runtime.auth import identity

_MODEL = ("provider", "model")
_FIRST_DELTA_S = (0.05, 0.1, 0.25, 0.5, 1, 2, 4, 8, 15, 30, 60, 120)

OPEN_STREAMS = Gauge("headrace_llm_open_streams", "Streams of callers that are open.")
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
SERIES_MAX = 1024
"""Maximum combinations of labels whose series are kept at hand."""

_BREAKER_VALUES = {"closed": 0, "half-open": 1, "open": 2}


def count_attempt(
    provider: str, model: str, outcome: str, deltas: int, first_delta_s: float | None, usage: common_pb2.Usage | None
) -> None:
    tenant = identity.label_tenant()
    attempts, all_deltas, first_delta, input_tokens, output_tokens, cost = _find_series(
        provider, model, outcome, tenant
    )
    attempts.inc()
    all_deltas.inc(deltas)
    if first_delta_s is not None:
        first_delta.observe(first_delta_s)
    if usage is not None:
        input_tokens.inc(usage.input_tokens)
        output_tokens.inc(usage.output_tokens)
        cost.inc(usage.cost_usd)


@lru_cache(maxsize=SERIES_MAX)
def _find_series(provider: str, model: str, outcome: str, tenant: str) -> tuple[Any, ...]:
    return (
        _ATTEMPTS.labels(provider, model, outcome),
        _DELTAS.labels(provider, model),
        _FIRST_DELTA.labels(provider, model),
        _TOKENS.labels(provider, model, tenant, "input"),
        _TOKENS.labels(provider, model, tenant, "output"),
        _COST.labels(provider, model, tenant),
    )


def set_breaker_state(state: str, provider: str, model: str) -> None:
    _BREAKER.labels(provider, model).set(_BREAKER_VALUES[state])


def forget_breaker(provider: str, model: str) -> None:
    _BREAKER.remove(provider, model)
