"""The certificates of a process, for all of its servers and channels; plain text if unset.

Files are checked for each new connection, so renewal needs no restart.
"""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TypeAlias

import structlog

from services.runtime.http2.tls import restrict_to_http2

CERT, KEY, CA = "HEADRACE_TLS_CERT", "HEADRACE_TLS_KEY", "HEADRACE_TLS_CA"

_Stamp: TypeAlias = tuple[tuple[int, int], ...]

log = structlog.get_logger()


def load_certificates() -> Certificates | None:
    """Return the certificates, if set; raises OSError if they cannot be used."""
    cert, key, ca = (os.environ.get(name, "") for name in (CERT, KEY, CA))
    return Certificates(cert, key, ca) if cert else None


def check_tls_settings(cert: str, key: str, ca: str, transport: str) -> None:
    if bool(cert) != bool(key) or (ca and not cert):
        raise ValueError(f"{CERT}, {KEY}, {CA}: expected none, the first two, or all three")
    if cert and transport != "h2":
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
        self._cert, self._key, self._ca = cert, key, ca
        self._seen = self._stamp_files()
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
        if (stamp := self._stamp_files()) != self._seen:
            self._seen = stamp
            try:
                self._contexts = self._read_contexts()
            except OSError as error:
                # Half of a renewal, perhaps; the other half is a change that is seen too.
                log.warning("certificates not read, the former ones stay", error=str(error))
            else:
                log.info("certificates read", cert=self._cert)
        return self._contexts

    def _stamp_files(self) -> _Stamp:
        return tuple(_stamp(path) for path in (self._cert, self._key, self._ca) if path)

    def _read_contexts(self) -> _Contexts:
        try:
            client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if not self._ca:
                client.load_default_certs()
            return _Contexts(self._read_server_context(), self._load_files(client))
        except OSError as error:
            files = ", ".join(path for path in (self._cert, self._key, self._ca) if path)
            raise OSError(f"cannot use the certificates {files}: {error}") from error

    def _read_server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        # A resumed session would be believed without its certificate, whatever has happened to that since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
        if self._ca:
            context.verify_mode = ssl.CERT_REQUIRED
        return self._load_files(context)

    def _load_files(self, context: ssl.SSLContext) -> ssl.SSLContext:
        # A key with a password is an error; without one given here OpenSSL would ask the terminal.
        context.load_cert_chain(self._cert, self._key, password="")
        if self._ca:
            context.load_verify_locations(self._ca)
        return restrict_to_http2(context)


def _stamp(path: str) -> tuple[int, int]:
    """Return inode and time of change; zeros if the file is gone."""
    try:
        found = os.stat(path)
    except OSError:
        return (0, 0)
    return (found.st_ino, found.st_ctime_ns)
