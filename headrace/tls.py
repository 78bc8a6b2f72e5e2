"""TLS for callers outside the suite."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files, read for each connection."""

    ca: str = ""
    """CA of the server's certificate; empty for the system's CAs."""

    certificate: str = ""
    """The caller's certificate with its chain, if a server asks."""

    key: str = ""
    """Its key, without a password."""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("a certificate and its key: expected both or neither")

    def context(self) -> ssl.SSLContext:
        """Return the context for HTTP; raises OSError if the files cannot be used."""
        try:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.minimum_version = ssl.TLSVersion.TLSv1_2
            if self.ca:
                context.load_verify_locations(self.ca)
            else:
                context.load_default_certs()
            if self.certificate:
                # A key with a password is an error; without one given here OpenSSL would ask the terminal.
                context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            files = ", ".join(path for path in (self.ca, self.certificate, self.key) if path)
            raise OSError(f"cannot use the certificates {files}: {error}") from error
        return context

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials for gRPC; raises as `context`."""
        self.context()  # gRPC would report a bad file as a server that cannot be reached
        return grpc.ssl_channel_credentials(_read_bytes(self.ca), _read_bytes(self.key), _read_bytes(self.certificate))


def _read_bytes(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
