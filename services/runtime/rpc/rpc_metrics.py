"""Metrics of gRPC servers, counted by RPC."""

from __future__ import annotations

from functools import cache

import grpc
from prometheus_client import Counter, Gauge

RPCS = Counter("headrace_rpcs", "RPCs that have ended; those of gRPC itself are not among them.", ("method", "code"))
OPEN_STREAMS = Gauge("headrace_rpc_open_streams", "Streaming RPCs that are open.")


@cache  # as many as there are methods and codes
def find_counter(method: str, code: grpc.StatusCode) -> Counter:
    """Return what counts a method's RPCs that have ended so; there is one for each method that is served."""
    return RPCS.labels(method, code.name)
