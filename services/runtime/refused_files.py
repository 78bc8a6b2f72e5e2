"""Counts configuration files that are refused: the last good ones, which stay, hide the mistake until a restart."""

from __future__ import annotations

from prometheus_client import Gauge

REFUSED_FILES = Gauge(
    "headrace_refused_files", "Configuration files that are refused now; what was good last stays in force.", ("kind",)
)
