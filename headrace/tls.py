"""TLS for programs that call from outside of the suite: whom they believe, and what they show."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc


@dataclass(frozen=True, slots=True)
class Tls:
    """Files in PEM. They are read when a connection is set up, not again when they change."""

    ca: str = ""
    """The CA that has signed the server's certificate; empty: those that everybody believes."""

    certificate: str = ""
    """Our own, where the server asks for one; with the chain up to its CA."""

    key: str = ""
    """Its key, without a password."""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("a certificate and its key: expected both or neither")

    def context(self) -> ssl.SSLContext:
        """For HTTP. Raises OSError when the files cannot be read, or do not belong together."""
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
        """For gRPC. Raises as `context`."""
        self.context()  # gRPC itself would say of a bad file only that the server cannot be reached
        return grpc.ssl_channel_credentials(_content(self.ca), _content(self.key), _content(self.certificate))


def _content(path: str) -> bytes | None:
    return Path(path).read_bytes() if path else None
