"""The process's gRPC transport and its certificates, for all servers and channels.

The transport is our own HTTP/2 (`h2`), that and memory (`local`), or grpcio. Without certificates it sends plain text.
Certificate files are checked for each new connection, so that a renewal needs no restart.
"""

from __future__ import annotations

import math
import os
import ssl
from dataclasses import dataclass
from functools import partial

import structlog
from prometheus_client import Gauge

from headrace.regular_files import read_regular_file
from headrace.tls import PEM_BYTES_MAX, Tls
from services.runtime.http2.tls import restrict_to_http2

VARIABLE = "HEADRACE_TRANSPORT"
TRANSPORTS = ("h2", "grpcio", "local")
"""With `local`, channels reach the servers of the same process in memory, and all others by h2."""
DEFAULT = "h2"


def get_transport() -> str:
    return os.environ.get(VARIABLE, DEFAULT)


def check_transport(name: str) -> None:
    if name not in TRANSPORTS:
        raise ValueError(f"{VARIABLE}: {name!r}: expected one of {', '.join(TRANSPORTS)}")


CERT, KEY, CA = "HEADRACE_TLS_CERT", "HEADRACE_TLS_KEY", "HEADRACE_TLS_CA"

log = structlog.get_logger()


def load_certificates() -> Certificates | None:
    """Return the certificates, if set; raises OSError if they are unusable."""
    cert, key, ca = (os.environ.get(name, "") for name in (CERT, KEY, CA))
    if not cert:
        return None
    certificates = Certificates(cert, key, ca)
    report_expiry(cert, ca)
    return certificates


def check_tls_settings(cert: str, key: str, ca: str, transport: str) -> None:
    if bool(cert) != bool(key) or (ca and not cert):
        raise ValueError(f"{CERT}, {KEY}, {CA}: expected none, the first two, or all three")
    if cert and transport == "grpcio":
        raise ValueError(f"{CERT} needs HEADRACE_TRANSPORT=h2")


@dataclass(frozen=True, slots=True)
class _Contexts:
    server: ssl.SSLContext
    client: ssl.SSLContext


class Certificates:
    """A certificate, its key and the peers' CA, as PEM files.

    With a CA, both ends must present a certificate signed by it; without, servers are checked against the machine's
    CAs.
    """

    def __init__(self, cert: str, key: str, ca: str = "") -> None:
        """Read the files; raises OSError if they are unusable."""
        self._tls = Tls(ca, cert, key)
        self._seen = self._tls.read_stamp()
        self._contexts = self._read_contexts()

    def make_server_context(self) -> ssl.SSLContext:
        """Return a context that uses the current certificates in each handshake."""
        listening = self._read_server_context()
        # Called for every client, with or without a server name, before certificates are chosen and checked.
        listening.sni_callback = self._choose_context
        return listening

    def get_client_context(self) -> ssl.SSLContext:
        return self._get_contexts().client

    def _choose_context(self, handshake: ssl.SSLObject, server_name: str | None, listening: ssl.SSLContext) -> None:
        handshake.context = self._get_contexts().server

    def _get_contexts(self) -> _Contexts:
        if (stamp := self._tls.read_stamp()) != self._seen:
            self._seen = stamp
            try:
                self._contexts = self._read_contexts()
            except OSError as error:
                # Perhaps half of a renewal; the other half triggers another change.
                log.warning("certificates not read, the former ones stay", error=str(error))
            else:
                log.info("certificates read", cert=self._tls.certificate)
        return self._contexts

    def _read_contexts(self) -> _Contexts:
        return _Contexts(self._read_server_context(), restrict_to_http2(self._tls.context()))

    def _read_server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would be trusted without its certificate, which may have been revoked since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        if self._tls.ca:
            context.verify_mode = ssl.CERT_REQUIRED
        self._tls.load_into(context)
        return restrict_to_http2(context)


_EXPIRES = Gauge(
    "headrace_certificate_expires_timestamp_seconds",
    "When a file's first certificate expires, in Unix seconds; NaN while it cannot be read.",
    ("file",),
)


def report_expiry(*files: str) -> None:
    """Export to Prometheus when each of the files expires; empty names are skipped."""
    for file in filter(None, files):
        _EXPIRES.labels(file).set_function(partial(read_expiry, file))


def read_expiry(file: str) -> float:
    """Return when the first certificate in the PEM file expires, in Unix seconds; NaN if it has none."""
    from cryptography import x509  # imported at the first scrape: a service without certificates does not need it

    try:
        pem = read_regular_file(file, PEM_BYTES_MAX)
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        return math.nan
