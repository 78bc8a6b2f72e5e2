"""The certificates of a process, for all of its servers and channels; plain text if unset.

Files are checked for each new connection, so renewal needs no restart.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass

import structlog

from headrace.tls import Tls
from services.runtime.http2.tls import restrict_to_http2
from services.runtime.process.tls_expiry import report_expiry

CERT, KEY, CA = "HEADRACE_TLS_CERT", "HEADRACE_TLS_KEY", "HEADRACE_TLS_CA"

log = structlog.get_logger()


def load_certificates() -> Certificates | None:
    """Return the certificates, if set; raises OSError if they cannot be used."""
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

    With a CA, both ends must show a certificate that it signed; without, servers are checked against the machine's CAs.
    """

    def __init__(self, cert: str, key: str, ca: str = "") -> None:
        """Read the files; raises OSError if they cannot be used."""
        self._tls = Tls(ca, cert, key)
        self._seen = self._tls.read_stamp()
        self._contexts = self._read_contexts()

    def make_server_context(self) -> ssl.SSLContext:
        """Return a context whose handshakes take the current certificates."""
        listening = self._read_server_context()
        # Called for every client, whether it names a server or not, before certificates are chosen and checked.
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
                # Half of a renewal, perhaps; the other half is a change that is seen too.
                log.warning("certificates not read, the former ones stay", error=str(error))
            else:
                log.info("certificates read", cert=self._tls.certificate)
        return self._contexts

    def _read_contexts(self) -> _Contexts:
        return _Contexts(self._read_server_context(), restrict_to_http2(self._tls.context()))

    def _read_server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would be believed without its certificate, whatever has happened to that since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        if self._tls.ca:
            context.verify_mode = ssl.CERT_REQUIRED
        self._tls.load_into(context)
        return restrict_to_http2(context)
