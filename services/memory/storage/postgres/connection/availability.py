"""Availability of the database at the last call, for health, metrics and the log."""

from __future__ import annotations

import structlog
from prometheus_client import Gauge

from services.runtime.clock import monotonic_s

SAY_EVERY_S = 10.0
"""Least time between log lines of a partial outage; a full one gets two lines."""

_UP = Gauge("headrace_database_up", "1 while the database can be used.")

log = structlog.get_logger()


class Availability:
    def __init__(self) -> None:
        self.is_up = True
        self._is_said = False
        self._said_at = float("-inf")
        _UP.set(1)

    def note_failure(self, error: BaseException) -> None:
        self.is_up = False
        _UP.set(0)
        now = monotonic_s()
        if not self._is_said and now - self._said_at >= SAY_EVERY_S:
            self._is_said, self._said_at = True, now
            log.warning("database away", kind=type(error).__name__)

    def note_success(self) -> None:
        if self.is_up:
            return
        self.is_up = True
        _UP.set(1)
        if self._is_said:
            self._is_said = False
            log.info("database back", away_s=round(monotonic_s() - self._said_at, 1))
