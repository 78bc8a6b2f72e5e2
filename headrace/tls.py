"""TLS certificates from files, for all clients and servers of the suite."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from typing import TypeAlias

import grpc

from headrace.regular_files import read_regular_file

PEM_BYTES_MAX = 1024 * 1024

Stamp: TypeAlias = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Tls:
    """Paths of PEM files, read for each connection."""

    ca: str = ""
    """CA of the server's certificate; empty for the system's CAs."""

    certificate: str = ""
    """Client certificate with its chain, if a server asks for one."""

    key: str = ""
    """Key of the certificate, without a password."""

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.key):
            raise ValueError("a certificate and its key: expected both or neither")

    @property
    def files(self) -> tuple[str, ...]:
        return tuple(path for path in (self.certificate, self.key, self.ca) if path)

    def context(self) -> ssl.SSLContext:
        """Return a context for HTTP; raise OSError if the files cannot be used."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        if not self.ca:
            context.load_default_certs()
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Load the files into a client's or a server's context.

        Raises:
            OSError: The files cannot be used.
        """
        try:
            for path in self.files:
                read_regular_file(path, PEM_BYTES_MAX)  # OpenSSL would block on a pipe
            if self.ca:
                try:
                    context.load_verify_locations(self.ca)
                except ssl.SSLError as error:
                    raise OSError(f"{self.ca} holds no certificates in PEM") from error
            if self.certificate:
                # A key with a password is an error; without a password argument, OpenSSL would prompt at the
                # terminal.
                context.load_cert_chain(self.certificate, self.key, password="")
        except OSError as error:
            raise OSError(f"cannot use the certificates {', '.join(self.files)}: {error}") from error

    def read_stamp(self) -> Stamp:
        """Return inode and change time of each file, zeros for a missing one; the value differs when a file has
        changed.
        """
        return tuple(_read_file_stamp(path) for path in self.files)

    def credentials(self) -> grpc.ChannelCredentials:
        """Return the credentials for gRPC; raise as `context` does."""
        self.context()  # gRPC would report a bad file as an unreachable server
        return grpc.ssl_channel_credentials(_read_bytes(self.ca), _read_bytes(self.key), _read_bytes(self.certificate))


def _read_file_stamp(path: str) -> tuple[int, int]:
    try:
        status = os.stat(path)
    except OSError:
        return (0, 0)
    return (status.st_ino, status.st_ctime_ns)


def _read_bytes(path: str) -> bytes | None:
    return read_regular_file(path, PEM_BYTES_MAX) if path else None
