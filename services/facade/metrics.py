"""The facade's metrics."""

from __future__ import annotations

from prometheus_client import Gauge, Histogram

REQUESTS = Histogram(
    "headrace_facade_request_duration_seconds",
    "Time of requests that have ended, by the route as annotated.",
    ("route", "status"),
    buckets=(0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 10, 60, 300),
)
OPEN_STREAMS = Gauge("headrace_facade_open_streams", "Streams of callers that are open.")
