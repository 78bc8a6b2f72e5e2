"""The process's gRPC transport: our own HTTP/2 (`h2`) or grpcio."""

from __future__ import annotations

import os

VARIABLE = "HEADRACE_TRANSPORT"
TRANSPORTS = ("h2", "grpcio")
DEFAULT = "h2"


def get_transport() -> str:
    return os.environ.get(VARIABLE, DEFAULT)


def check_transport(name: str) -> None:
    if name not in TRANSPORTS:
        raise ValueError(f"{VARIABLE}: {name!r}: expected {' or '.join(TRANSPORTS)}")
