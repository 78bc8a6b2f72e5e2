"""Tracks whether the bucket responds, for metrics and the log, and so that not all callers wait for one that does
not."""

from __future__ import annotations

import structlog
from prometheus_client import Gauge, Histogram

from services.runtime.clock import monotonic_s

REST_S = 2.0
"""How long requests are refused immediately after one has waited in vain."""

_UP = Gauge("headrace_blob_bucket_up", "1 while the bucket of the blobs answers; without such a bucket always 1.")
_UP.set(1)
SECONDS = Histogram(
    "headrace_blob_bucket_seconds",
    "Time of requests to the bucket of the blobs, with what was sent again; `outcome`: ok, missing, refused or away.",
    ("operation", "outcome"),
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15),
)

log = structlog.get_logger()


class Availability:
    """While the bucket is unavailable, one request after each pause tests whether it is back."""

    def __init__(self, rest_s: float = REST_S) -> None:
        self._rest_s = rest_s
        self._is_away = False
        self._is_probing = False
        self._away_since_s = self._rest_until_s = 0.0
        _UP.set(1)

    def may_ask(self) -> bool:
        """Return whether a request may be sent now; its outcome must then be recorded."""
        if not self._is_away:
            return True
        if self._is_probing or monotonic_s() < self._rest_until_s:
            return False
        self._is_probing = True
        return True

    def note_failure(self, kind: str) -> None:
        self._rest_until_s = monotonic_s() + self._rest_s
        self._is_probing = False
        if not self._is_away:
            self._is_away, self._away_since_s = True, monotonic_s()
            _UP.set(0)
            log.error("bucket of the blobs away", kind=kind)

    def note_success(self) -> None:
        """Record a response, even a refusal."""
        self._is_probing = False
        if self._is_away:
            self._is_away = False
            _UP.set(1)
            log.warning("bucket of the blobs back", away_s=round(monotonic_s() - self._away_since_s, 1))

    def note_nothing(self) -> None:
        """Record that a request ended without an outcome because its caller left."""
        self._is_probing = False
