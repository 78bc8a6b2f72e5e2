"""Metrics of the orchestrator; live runs are counted when scraped."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from headrace.run_states import LIVE_STATES

if TYPE_CHECKING:
    from headrace.v1 import common_pb2

RUNS = Gauge("headrace_runs", "Live runs, by what they do.", ("state",))
ENDED = Counter("headrace_runs_ended", "Runs that have ended here; `error`: why one failed.", ("state", "error"))
FIRST_DELTA = Histogram(
    "headrace_run_first_delta_seconds",
    "From a query to the first text of its run, reasoning included; not of runs taken over.",
    buckets=(0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
)
PARKED = Counter("headrace_runs_parked", "Runs that were parked here, each time.")
COMPACTIONS = Counter("headrace_compactions", "Compactions of contexts that have ended.", ("trigger", "outcome"))
COMPACTION_TOKENS = Counter(
    "headrace_compaction_tokens",
    "Tokens of summaries' model calls; `moment`: in_run, or between_runs, where no run's usage has them.",
    ("moment", "kind"),
)
COMPACTION_COST = Counter("headrace_compaction_cost_usd", "Of these tokens, for models that have a price.", ("moment",))
ASKED_AGAIN = Counter("headrace_turns_asked_again", "Turns whose gateway went away in the middle of them.")
QUEUE_LENGTH = Gauge("headrace_tenant_queue_length", "Queries that wait for a place of their tenant.", ("tenant",))


def count_compaction(moment: str, usage: common_pb2.Usage) -> None:
    """Count one model call for a compaction."""
    COMPACTION_TOKENS.labels(moment, "input").inc(usage.input_tokens)
    COMPACTION_TOKENS.labels(moment, "output").inc(usage.output_tokens)
    COMPACTION_COST.labels(moment).inc(usage.cost_usd)


@contextmanager
def exposing_runs(list_states: Callable[[], Iterable[str]]) -> Generator[None]:
    """Count live runs by the states that `list_states` returns at each scrape."""

    def count(state: str) -> int:
        return sum(name == state for name in list_states())

    for state in LIVE_STATES:  # a live run has other states only for a moment
        RUNS.labels(state).set_function(partial(count, state))
    try:
        yield
    finally:
        RUNS.clear()
