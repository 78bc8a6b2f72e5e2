"""When the certificates of a process expire, for Prometheus: as the files are at each scrape."""

from __future__ import annotations

import math
from functools import partial

from prometheus_client import Gauge

from headrace.regular_files import read_regular_file
from headrace.tls import PEM_BYTES_MAX

_EXPIRES = Gauge(
    "headrace_certificate_expires_timestamp_seconds",
    "When a file's first certificate expires, in Unix seconds; NaN while it cannot be read.",
    ("file",),
)


def report_expiry(*files: str) -> None:
    """Let Prometheus see when each of the files expires; empty names are none."""
    for file in filter(None, files):
        _EXPIRES.labels(file).set_function(partial(read_expiry, file))


def read_expiry(file: str) -> float:
    """Return when the first certificate in the PEM file expires, in Unix seconds; NaN if there is none."""
    from cryptography import x509  # imported at the first scrape: a service without certificates has no use for it

    try:
        pem = read_regular_file(file, PEM_BYTES_MAX)
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return math.nan
