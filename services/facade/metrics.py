"""The facade's metrics."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

REQUESTS = Counter(
    "headrace_facade_requests", "Requests that have ended, by the route as annotated.", ("route", "status")
)
OPEN_STREAMS = Gauge("headrace_facade_open_streams", "Streams of callers that are open.")
