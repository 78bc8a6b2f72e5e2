"""Metrics of gRPC servers, counted by RPC."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

RPCS = Counter("headrace_rpcs", "RPCs that have ended; those of gRPC itself are not among them.", ("method", "code"))
OPEN_STREAMS = Gauge("headrace_rpc_open_streams", "Streaming RPCs that are open.")
