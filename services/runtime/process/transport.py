"""The process's gRPC transport: our own HTTP/2 (`h2`), that and memory (`local`), or grpcio."""

from __future__ import annotations

import os

VARIABLE = "HEADRACE_TRANSPORT"
TRANSPORTS = ("h2", "grpcio", "local")
"""With `local`, channels reach the servers of their own process in memory, and all others by h2."""
DEFAULT = "h2"


def get_transport() -> str:
    return os.environ.get(VARIABLE, DEFAULT)


def check_transport(name: str) -> None:
    if name not in TRANSPORTS:
        raise ValueError(f"{VARIABLE}: {name!r}: expected one of {', '.join(TRANSPORTS)}")
